package define

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/internal/sweep/command"
	"berth/jobs"
)

// Task is a task of a sweep.
type Task = command.Task

// ID is the id of one.
type ID = command.ID

// hasher makes ids. It keeps 20 bytes for each task, and nothing else.
type hasher struct {
	content [32]byte
	seen    map[ID]uint32
	buf     []byte
	sorted  []Param
}

func newHasher(content []byte) *hasher {
	return &hasher{content: sha256.Sum256(content), seen: map[ID]uint32{}}
}

func (h *hasher) id(row []Param) (ID, int) {
	h.sorted = append(h.sorted[:0], row...)
	slices.SortFunc(h.sorted, func(a, b Param) int { return cmp.Compare(a.Name, b.Name) })
	b := append(h.buf[:0], "berth sweep task 1\x00"...)
	b = append(b, h.content[:]...)
	for _, p := range h.sorted {
		b = binary.AppendUvarint(b, uint64(len(p.Name)))
		b = append(b, p.Name...)
		b = binary.AppendUvarint(b, uint64(len(p.Text)))
		b = append(b, p.Text...)
	}
	h.buf = b
	sum := sha256.Sum256(b)
	key := ID(sum[:16])
	n := h.seen[key]
	h.seen[key] = n + 1
	sum = sha256.Sum256(binary.BigEndian.AppendUint64(sum[:], uint64(n)))
	return ID(sum[:16]), int(n)
}

// content is what a task does apart from its parameters.
func (s *Sweep) content(taskFile []byte) []byte {
	if s.Command == nil {
		return append([]byte("file\x00"), taskFile...)
	}
	words, script := s.Command.Words()
	b := []byte("argv\x00")
	if script {
		b = []byte("script\x00")
	}
	for _, w := range words {
		b = binary.AppendUvarint(b, uint64(len(w)))
		b = append(b, w...)
	}
	return b
}

// maxComplaints is how many rows are complained about at once.
const maxComplaints = 10

// Tasks makes the tasks in their order and gives each to yield, whose Params are
// valid until it returns. taskFile is the text of a sweep's task file. A wrong row is
// an error, at the end of all of them; so is a sweep without rows.
func (s *Sweep) Tasks(taskFile []byte, yield func(Task) error) error {
	most := s.Most
	if most == 0 {
		most = MostTasks
	}
	product := s.repeat
	for _, f := range s.factors {
		if product > most/f.count+1 {
			product = most + 1
			break
		}
		product *= f.count
	}
	if s.rows == nil && len(s.where) == 0 && product > most {
		return tooMany(most)
	}
	g := &generator{s: s, h: newHasher(s.content(taskFile)), most: most, file: taskFile, yield: yield}
	var err error
	if s.rows != nil {
		err = s.rows.each(g.base)
	} else {
		err = g.product(0, nil, 0)
	}
	switch {
	case errors.Is(err, errEnough):
	case err != nil && jobs.KindOf(err) == jobs.KindUsage && len(g.complaints) > 0:
		g.complaints = append(g.complaints, err.Error())
	case err != nil:
		return err
	}
	switch {
	case len(g.complaints) > 0:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: strings.Join(g.complaints, "\n"), Hint: g.hint}
	case g.n == 0 && g.left > 0:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the sweep has no tasks: where leaves out all of its %d rows", g.left)}
	case g.n == 0:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the sweep has no tasks: there are no rows"}
	}
	return nil
}

func tooMany(most int) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the sweep has more than %d tasks", most), Hint: "--max-tasks allows more"}
}

type generator struct {
	s          *Sweep
	h          *hasher
	most, n    int
	left       int // rows that a condition leaves out
	file       []byte
	yield      func(Task) error
	complaints []string
	hint       string
	names      []string // of the rows of a file
}

var errEnough = errors.New("enough complaints")

// base is a row of a file, to be multiplied with the rest.
func (g *generator) base(line int, row []Param) error {
	complain := func(format string, args ...any) error {
		g.complaints = append(g.complaints, fmt.Sprintf("%s:%d: ", g.s.rows.name(), line)+fmt.Sprintf(format, args...))
		if len(g.complaints) >= maxComplaints {
			return errEnough
		}
		return nil
	}
	if g.names == nil {
		for _, p := range row {
			if g.s.names[p.Name] {
				return complain("%q is a parameter of the sweep's file, too", p.Name)
			}
			g.names = append(g.names, p.Name)
		}
	}
	before := len(g.complaints)
	if err := g.product(0, row, line); err != nil {
		return err
	}
	if len(g.complaints) > before {
		g.complaints = g.complaints[:before+1] // one a row
	}
	return nil
}

// product multiplies a row with the factors from f on.
func (g *generator) product(f int, row []Param, line int) error {
	if f < len(g.s.factors) {
		for i := range g.s.factors[f].count {
			if err := g.product(f+1, append(row[:len(row):len(row)], g.s.factors[f].row(i)...), line); err != nil {
				return err
			}
		}
		return nil
	}
	row = append(row[:len(row):len(row)], g.s.constants...)
	for _, c := range g.s.where {
		ok, err := c.Holds(row)
		if err != nil {
			return g.complain(line, err)
		}
		if !ok {
			g.left++
			return nil
		}
	}
	for range g.s.repeat {
		if g.n >= g.most {
			return tooMany(g.most)
		}
		t := Task{Number: g.n + 1, Params: row}
		t.ID, t.Repeat = g.h.id(row)
		if err := g.check(t); err != nil {
			return g.complain(line, err)
		}
		g.n++
		if len(g.complaints) > 0 {
			continue
		}
		if err := g.yield(t); err != nil {
			return err
		}
	}
	return nil
}

func (g *generator) complain(line int, err error) error {
	where := fmt.Sprintf("task %d: ", g.n+1)
	if line > 0 {
		where = fmt.Sprintf("%s:%d: ", g.s.rows.name(), line)
	}
	if g.hint == "" {
		g.hint = jobs.HintOf(err)
	}
	if t := g.s.Command; g.hint == "" && t != nil && slices.Equal(g.names, []string{LineName}) && !slices.Contains(t.Names(), LineName) {
		g.hint = "lines that are no JSON objects are {" + LineName + "}; rows of CSV are those of a file: --rows FILE.csv"
	}
	g.complaints = append(g.complaints, where+err.Error())
	if len(g.complaints) >= maxComplaints {
		return errEnough
	}
	return nil
}

// check tells whether the task can be run as it is.
func (g *generator) check(t Task) error {
	if err := g.s.fits(t); err != nil {
		return err
	}
	if g.s.Command == nil {
		_, err := command.File(g.file, t)
		return err
	}
	_, err := g.s.Command.Command(t)
	return err
}

// fits tells whether a worker can have the task.
func (s *Sweep) fits(t Task) error {
	if s.Request == (command.Request{}) {
		return nil
	}
	share, err := s.Request.Of(t)
	cpus, memory := share.CPUs, share.Memory
	switch most := s.Worker; {
	case err != nil:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: err.Error(), Hint: "berth help sweeps has it under Packing"}
	case share.Ranks > 0 && !s.Steps:
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "the task has ranks, for which a worker begins a step of its own: only in jobs of Slurm, without a container",
			Hint: "--scheduler slurm --backend local; with containers or several nodes each row is a job of its own: a task file with ntasks"}
	case share.Ranks > 0 && memory == 0:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the task has ranks, and does not say how much memory they have",
			Hint: "mem says it, of all of them, such as mem = \"4GiB\": their step would take all of the worker's"}
	case share.Ranks > 0 && share.GPUs > 0:
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the task has ranks and asks for GPUs: not available in a worker",
			Hint: "each row as a job of its own: a task file with ntasks and gpus"}
	case most.CPUs > 0 && cpus > most.CPUs:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the task asks for %d CPUs, and a worker has %d", cpus, most.CPUs),
			Hint: "--cpus gives each worker more"}
	case share.GPUs > 0 && s.GPUs == 0:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the task asks for GPUs, and how many a worker has is not said",
			Hint: "--gpus says it; on this machine --env CUDA_VISIBLE_DEVICES=0,1"}
	case share.GPUs > s.GPUs:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the task asks for %d GPUs, and a worker has %d", share.GPUs, s.GPUs),
			Hint: "--gpus gives each worker more"}
	case most.CPUs > 0 && memory > 0 && most.Memory == 0:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the task asks for memory, and how much a worker has is not said",
			Hint: "--memory says it, such as --memory 16GiB"}
	case most.Memory > 0 && memory > most.Memory:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the task asks for %s of memory, and a worker has %s", memory, most.Memory),
			Hint: "--memory gives each worker more"}
	}
	return nil
}
