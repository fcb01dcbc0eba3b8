package look

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"berth/internal/sweep"
	"berth/internal/sweep/command"
	"berth/internal/sweep/journal"
	"berth/jobs"
)

// mostSideLine bounds the line of a task: a row of 1 MiB may be six times that in JSON.
const mostSideLine = 16 << 20

// Head is the first line of what [Look.WriteSide] writes.
type Head struct {
	ID      string         `json:"id"`
	Overlay *sweep.Overlay `json:"overlay,omitempty"`
	Tasks   int            `json:"tasks"` // lines behind it
}

// sideTask is a line: a task that is not withdrawn.
type sideTask struct {
	Number int                `json:"task"`
	Params []command.Param    `json:"params"`
	Repeat int                `json:"repeat,omitempty"`
	State  journal.State      `json:"state"`
	Found  map[string]float64 `json:"found,omitempty"` // of one with a result
}

// Head is that of the sweep.
func (l *Look) Head() Head {
	return Head{ID: l.Sweep.Spec.ID, Overlay: l.Sweep.Spec.Overlay, Tasks: l.notWithdrawn().Len()}
}

// WriteSide writes what a berth on another machine compares the sweep by.
func (l *Look) WriteSide(to io.Writer) error {
	c, err := NewCollector(l, l.Sweep.Spec.Collect)
	if err != nil {
		return err
	}
	defer c.Close()
	w := bufio.NewWriterSize(to, 1<<16)
	out := json.NewEncoder(w)
	if err := out.Encode(l.Head()); err != nil {
		return err
	}
	if err := l.wanted(func(t command.Task, s journal.State) error {
		line := sideTask{Number: t.Number, Params: t.Params, Repeat: t.Repeat, State: s}
		if s.Result() {
			r, err := l.Row(t)
			if err != nil {
				return err
			}
			if line.Found, err = numbersOf(c, r); err != nil {
				return err
			}
		}
		return out.Encode(line)
	}); err != nil {
		return err
	}
	return w.Flush()
}

// There is a [Side] on another machine, as [Look.WriteSide] has written it there.
type There struct {
	Head
	from string // the machine, for people
	in   io.ReaderAt
	at   []stands // filled by wanted
}

type stands struct {
	task int
	at   int64
}

// ReadSide takes what a machine has written of the sweep with this id.
func ReadSide(in io.ReaderAt, from, id string) (*There, error) {
	t := &There{from: from, in: in}
	line, _, err := t.lines().next()
	if err == nil {
		err = json.Unmarshal(line, &t.Head)
	}
	if err == nil && t.ID != id {
		err = errors.New("it is of another sweep")
	}
	return t, t.wrong(err)
}

func (t *There) wrong(err error) error {
	if err == nil {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: t.from + " gave an answer about its sweep that makes no sense", Err: err,
		Hint: "is the berth there another version? berth sweep collect --jsonl FILE brings the results here"}
}

// lines reads from the beginning, and tells where each stands.
type lines struct {
	in *bufio.Reader
	at int64
}

func (t *There) lines() *lines {
	return &lines{in: bufio.NewReaderSize(io.NewSectionReader(t.in, 0, math.MaxInt64), 1<<16)}
}

func (l *lines) next() (line []byte, at int64, err error) {
	at = l.at
	for {
		part, err := l.in.ReadSlice('\n')
		line = append(line, part...)
		l.at += int64(len(part))
		switch {
		case len(line) > mostSideLine:
			return nil, 0, errors.New("a line of it is too long")
		case errors.Is(err, io.EOF):
			return nil, 0, io.ErrUnexpectedEOF
		case err == nil:
			return line, at, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, 0, err
		}
	}
}

func (t *There) wanted(each func(command.Task, journal.State) error) error {
	t.at = nil
	in := t.lines()
	if _, _, err := in.next(); err != nil { // the head
		return t.wrong(err)
	}
	last := 0
	for range t.Tasks {
		line, at, err := in.next()
		var s sideTask
		if err == nil {
			err = json.Unmarshal(line, &s)
		}
		switch {
		case err != nil:
		case s.Number <= last || s.Number > math.MaxInt32:
			err = fmt.Errorf("task %d stands behind task %d", s.Number, last)
		case s.State > journal.Running && !s.State.Result():
			err = fmt.Errorf("task %d is in no state that is known: %d", s.Number, s.State)
		}
		if err != nil {
			return t.wrong(err)
		}
		last = s.Number
		t.at = append(t.at, stands{s.Number, at})
		if err := each(command.Task{Number: s.Number, Params: s.Params, Repeat: s.Repeat}, s.State); err != nil {
			return err
		}
	}
	return nil
}

func (t *There) finder() (finder, error) { return t, nil }

func (t *There) each(numbers sweep.Numbers, each func(int, map[string]float64) error) (err error) {
	numbers.Each(func(task int) {
		if err != nil {
			return
		}
		var found map[string]float64
		if found, err = t.one(task); err == nil {
			err = each(task, found)
		}
	})
	return err
}

func (t *There) one(task int) (map[string]float64, error) {
	i, ok := slices.BinarySearchFunc(t.at, task, func(s stands, task int) int { return s.task - task })
	if !ok {
		return nil, t.wrong(fmt.Errorf("it has no task %d", task))
	}
	var s sideTask
	err := json.NewDecoder(io.NewSectionReader(t.in, t.at[i].at, mostSideLine)).Decode(&s)
	return s.Found, t.wrong(err)
}

func (t *There) close() {}
