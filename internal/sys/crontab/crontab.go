// Package crontab edits the one crontab that a user has: cron's own, or a scheduler's.
// What others have written into it stays as it is.
package crontab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/jobs"
)

// Entry are the lines of a state directory in a crontab, for one purpose.
type Entry struct {
	What string // says what they do with the state directory: "which follows the jobs of"
	Home string
}

func (e Entry) begin() string { return "# begin of berth, " + e.What + " " + e.Home + "\n" }
func (e Entry) end() string   { return "# end of berth, " + e.What + " " + e.Home + "\n" }

// Text is the entry with these lines.
func (e Entry) Text(lines ...string) (string, error) {
	for _, text := range append([]string{e.Home}, lines...) {
		if err := jobs.CheckText("the entry of a crontab", text); err != nil {
			return "", err
		}
		if strings.Contains(text, "%") { // it ends the command there (crontab(5))
			return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "what has a % cannot stand in a crontab: " + text,
				Hint: "BERTH_HOME names another state directory"}
		}
	}
	return e.begin() + strings.Join(lines, "\n") + "\n" + e.end(), nil
}

// Without takes the entry out of a crontab, and returns it. One whose first or last line
// is missing is not touched.
func (e Entry) Without(crontab string) (rest, entry string, err error) {
	if crontab != "" && !strings.HasSuffix(crontab, "\n") {
		crontab += "\n"
	}
	cut := &jobs.Error{Kind: jobs.KindConfig, Msg: "berth's entry for " + e.Home + " in your crontab was changed: its first and last line do not match",
		Hint: "repair or remove it with the editor of that crontab: crontab -e, or the scheduler's"}
	in, seen := false, 0
	var kept, own strings.Builder
	for line := range strings.Lines(crontab) {
		if line == e.begin() {
			if in || seen > 0 {
				return "", "", cut
			}
			in = true
			seen++
		}
		if in {
			own.WriteString(line)
		} else {
			kept.WriteString(line)
		}
		if line == e.end() {
			if !in {
				return "", "", cut
			}
			in = false
		}
	}
	if in {
		return "", "", cut
	}
	return kept.String(), own.String(), nil
}

// Tab is where a crontab stands.
type Tab interface {
	// Read returns all of it, "" where there is none.
	Read(ctx context.Context) (string, error)
	// Write puts the file at path in its place; "" removes it.
	Write(ctx context.Context, path string) error
}

// Put puts a text into the place of an entry, "" for none. It tells whether that changed anything.
func Put(ctx context.Context, tab Tab, e Entry, text string) (bool, error) {
	all, err := tab.Read(ctx)
	if err != nil {
		return false, err
	}
	rest, was, err := e.Without(all)
	if err != nil || was == text {
		return false, err
	}
	rest += text
	file := ""
	if strings.TrimSpace(rest) != "" {
		dir, err := os.MkdirTemp("", "berth-crontab-")
		if err != nil {
			return false, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		file = filepath.Join(dir, "crontab")
		if err := os.WriteFile(file, []byte(rest), 0o600); err != nil {
			return false, err
		}
	}
	return true, tab.Write(ctx, file)
}

// Interval writes an interval as crontab(5) has it.
func Interval(every time.Duration) (string, error) {
	m := int(every / time.Minute)
	switch {
	case every%time.Minute != 0 || m < 1:
	case m == 1:
		return "* * * * *", nil
	case m < 60 && 60%m == 0:
		return fmt.Sprintf("*/%d * * * *", m), nil
	case m == 60:
		return "0 * * * *", nil
	case m%60 == 0 && m < 24*60 && 24%(m/60) == 0:
		return fmt.Sprintf("0 */%d * * *", m/60), nil
	case m == 24*60:
		return "0 0 * * *", nil
	}
	return "", &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s is no interval of crontab's", every),
		Hint: "whole minutes that divide an hour, or hours that divide a day: 10m, 30m, 2h"}
}
