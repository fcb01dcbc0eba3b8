// Package tally counts the programs of a scheduler that a user's processes start, so that
// it can be told how often they ask it.
package tally

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Log is a directory with a file for each day, to which all processes append: a line is
// less than a page, and one that is lost, where two hosts write in the same instant to a
// network file system, is one command that is not counted.
type Log struct {
	Dir string
	Now func() time.Time // nil is time.Now
}

const (
	day = "2006-01-02"
	// kept is how long a file is of use, and some more for clocks that disagree.
	kept = 72 * time.Hour
	// most bounds what is read of a day.
	most = 64 << 20
)

func (l Log) now() time.Time {
	if l.Now == nil {
		return time.Now().UTC()
	}
	return l.Now().UTC()
}

// Note counts a program that is about to start. What cannot be counted is not told: the
// command is worth more than its count.
func (l Log) Note(program string) {
	if err := os.Mkdir(l.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return
	}
	now := l.now()
	name := filepath.Join(l.Dir, now.Format(day))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		l.prune(now)
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	}
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	host, _ := os.Hostname()
	_, _ = fmt.Fprintf(f, "%d %s %s\n", now.Unix(), filepath.Base(program), host)
}

// prune removes the files that are of no use any more.
func (l Log) prune(now time.Time) {
	files, _ := os.ReadDir(l.Dir)
	for _, f := range files {
		if t, err := time.Parse(day, f.Name()); err == nil && now.Sub(t) > kept {
			_ = os.Remove(filepath.Join(l.Dir, f.Name()))
		}
	}
}

// Line is a command that was counted.
type Line struct {
	Time    time.Time
	Program string
	Host    string
}

// Since returns what was counted from a time on. A line that cannot be read is left out.
func (l Log) Since(from time.Time) (out []Line, err error) {
	for at := from.UTC().Truncate(24 * time.Hour); !at.After(l.now()); at = at.Add(24 * time.Hour) {
		f, oerr := os.OpenFile(filepath.Join(l.Dir, at.Format(day)), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if errors.Is(oerr, fs.ErrNotExist) {
			continue
		}
		if oerr != nil {
			return out, oerr
		}
		in := bufio.NewScanner(io.LimitReader(f, most))
		for in.Scan() {
			w := strings.Fields(in.Text())
			if len(w) != 3 {
				continue
			}
			n, perr := strconv.ParseInt(w[0], 10, 64)
			if t := time.Unix(n, 0).UTC(); perr == nil && !t.Before(from) && !t.After(l.now()) {
				out = append(out, Line{Time: t, Program: w[1], Host: w[2]})
			}
		}
		err = errors.Join(err, in.Err())
		_ = f.Close()
	}
	return out, err
}
