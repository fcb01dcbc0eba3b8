package define

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"berth/internal/sweep/command"
	"berth/jobs"
)

// maxLine bounds a line of a file of rows.
const maxLine = 1 << 20

// LineName is the parameter of rows that are lines.
const LineName = "line"

// source is a file of rows, or the standard input.
type source struct {
	path  string
	said  string // as it stands in the definition; "" is that it does not
	stdin io.Reader
}

// RowsFile is the file that the rows stand in: its path, and what the definition says of it ("" is that
// the command line names it). "-" is the standard input, and "" that there is none.
func (s *Sweep) RowsFile() (path, said string) {
	if s.rows == nil {
		return "", ""
	}
	return s.rows.path, s.rows.said
}

func (s *source) name() string {
	if s.path == "-" {
		return "standard input"
	}
	return s.path
}

// check tells whether its name says what is in it, and it is there.
func (s *source) check() error {
	if s.path == "-" {
		return nil
	}
	switch filepath.Ext(s.path) {
	case ".csv", ".jsonl", ".ndjson":
	default:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the rows %s are no .csv or .jsonl", s.path),
			Hint: "lines are read from the standard input: --rows -"}
	}
	fi, err := os.Stat(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("the rows %s do not exist", s.path)}
	case err != nil:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "read the rows", Err: err}
	case !fi.Mode().IsRegular():
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the rows %s are no regular file", s.path)}
	}
	return nil
}

// each reads the rows. row is called with the number of the line; what it returns of
// the kind usage is a complaint, of which ten are told.
func (s *source) each(row func(line int, params []Param) error) error {
	in := s.stdin
	if s.path != "-" {
		f, err := os.Open(s.path)
		if err != nil {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "read the rows", Err: err}
		}
		defer f.Close()
		in = f
	}
	if in == nil {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "there is no standard input to read rows from"}
	}
	r := bufio.NewReaderSize(in, 256<<10)
	if b, err := r.Peek(3); err == nil && string(b) == "\ufeff" {
		_, _ = r.Discard(3)
	}
	if filepath.Ext(s.path) == ".csv" {
		return s.csv(r, row)
	}
	return s.lines(r, row)
}

func (s *source) fail(line int, format string, args ...any) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s:%d: ", s.name(), line) + fmt.Sprintf(format, args...)}
}

func (s *source) csv(in io.Reader, row func(int, []Param) error) error {
	r := csv.NewReader(&lineLimit{r: in})
	r.ReuseRecord = true
	var names []string
	for {
		record, err := r.Read()
		var wrong *csv.ParseError
		switch {
		case errors.Is(err, io.EOF) && names == nil:
			return s.fail(1, "there is no head, a line with the names of the parameters")
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, csv.ErrFieldCount) && errors.As(err, &wrong):
			return s.fail(wrong.Line, "has %d fields, and the head has %d", len(record), len(names))
		case errors.As(err, &wrong):
			return s.fail(wrong.Line, "%v", wrong.Err)
		case err != nil:
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "read " + s.name(), Err: err}
		}
		line, _ := r.FieldPos(0)
		if names == nil {
			for i, n := range record {
				n = strings.Clone(strings.TrimSpace(n))
				if err := checkName(n); err != nil {
					return s.fail(line, "column %d: %v", i+1, err)
				}
				for _, other := range names {
					if other == n {
						return s.fail(line, "%q is the name of two columns", n)
					}
				}
				names = append(names, n)
			}
			continue
		}
		params := make([]Param, len(names))
		for i, text := range record {
			if err := s.text(line, names[i], text); err != nil {
				return err
			}
			params[i] = Param{Name: names[i], Text: strings.Clone(text)}
		}
		if err := row(line, params); err != nil {
			return err
		}
	}
}

func (s *source) text(line int, name, text string) error {
	err := command.CheckText(text)
	if err == nil && !utf8.ValidString(text) {
		err = errors.New("is not UTF-8")
	}
	if err != nil {
		return s.fail(line, "%s %v", name, err)
	}
	return nil
}

// lineLimit refuses a file whose lines are too long for a row, before all of one is
// in memory.
type lineLimit struct {
	r    io.Reader
	long int
}

func (l *lineLimit) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	if i := bytes.LastIndexByte(b[:n], '\n'); i >= 0 {
		l.long = n - i
	} else if l.long += n; l.long > maxLine {
		return 0, fmt.Errorf("a line has more than %d bytes", maxLine)
	}
	return n, err
}

// lines reads a JSON object, or a text, in each line.
func (s *source) lines(in io.Reader, row func(int, []Param) error) error {
	scan := bufio.NewScanner(in)
	scan.Buffer(make([]byte, 64<<10), maxLine)
	objects := s.path != "-"
	line := 0
	for scan.Scan() {
		line++
		b := bytes.TrimSuffix(scan.Bytes(), []byte("\r"))
		if line == 1 && !objects {
			objects = len(b) > 0 && b[0] == '{' && json.Valid(b)
		}
		if len(bytes.TrimSpace(b)) == 0 {
			continue
		}
		params := []Param{{Name: LineName, Text: string(b)}}
		if objects {
			var err error
			if params, err = object(b); err != nil {
				return s.fail(line, "%v", err)
			}
		}
		for _, p := range params {
			if err := s.text(line, p.Name, p.Text); err != nil {
				return err
			}
		}
		if err := row(line, params); err != nil {
			return err
		}
	}
	if errors.Is(scan.Err(), bufio.ErrTooLong) {
		return s.fail(line+1, "has more than %d bytes", maxLine)
	}
	if scan.Err() != nil {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "read " + s.name(), Err: scan.Err()}
	}
	return nil
}

// object reads the parameters of a JSON object in their order. Numbers stay as they
// are written; an object or a list is its JSON.
func object(b []byte) ([]Param, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("is no JSON object")
	}
	var params []Param
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("is no JSON object: %w", err)
		}
		name, _ := t.(string)
		if err := checkName(name); err != nil {
			return nil, err
		}
		if _, ok := command.Find(params, name); ok {
			return nil, fmt.Errorf("%q stands twice", name)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, fmt.Errorf("is no JSON object: %w", err)
		}
		text := string(raw)
		switch raw[0] {
		case '"':
			if err := json.Unmarshal(raw, &text); err != nil {
				return nil, err
			}
		case 'n':
			return nil, fmt.Errorf("%s is null, which no command can be given", name)
		case '{', '[':
			var c bytes.Buffer
			if err := json.Compact(&c, raw); err != nil {
				return nil, err
			}
			text = c.String()
		}
		params = append(params, Param{Name: name, Text: text})
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("is no JSON object: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has something behind its JSON object")
	}
	return params, nil
}
