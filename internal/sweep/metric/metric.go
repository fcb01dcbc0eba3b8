package metric

import (
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"berth/jobs"
)

// Var names the file to which a task writes lines NAME=VALUE.
const Var = "BERTH_METRICS"

// Limits of a metric. A line is written at once, beside those of other processes: what is longer
// than PIPE_BUF a pipe may tear apart.
const (
	MaxName  = 100
	MaxValue = 1000
	mostSaid = 4096 // bytes at once
)

// Check tells what is wrong with a metric.
func Check(name, value string) error {
	switch {
	case name == "":
		return fmt.Errorf("a metric has no name")
	case !utf8.ValidString(name) || !utf8.ValidString(value):
		return fmt.Errorf("the metric %q is not UTF-8", name)
	case len(name) > MaxName:
		return fmt.Errorf("the name of a metric has %d bytes, and may have %d", len(name), MaxName)
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune(`{}"=`, r) }):
		return fmt.Errorf("the name %q of a metric has a space, a control character, or one of {}\"=", name)
	case len(value) > MaxValue:
		return fmt.Errorf("the value of the metric %s has %d bytes, and may have %d", name, len(value), MaxValue)
	case strings.ContainsFunc(value, func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }):
		return fmt.Errorf("the value of the metric %s has a character that cannot be shown", name)
	}
	return nil
}

// Say writes words NAME=VALUE as metrics to the file of a task, whose path is that of
// [Var]: all of them or, where one is wrong, none.
func Say(path string, words []string) error {
	const example = "berth metric loss=0.25"
	if len(words) == 0 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "there is no metric to tell", Hint: example}
	}
	var text strings.Builder
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		if !ok {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q is not NAME=VALUE", w), Hint: example}
		}
		if err := Check(name, value); err != nil {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: err.Error(), Hint: example}
		}
		text.WriteString(name + "=" + value + "\n")
	}
	switch {
	case text.Len() > mostSaid:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the metrics have %d bytes, and may have %d at once", text.Len(), mostSaid),
			Hint: "tell some at a time"}
	case path == "":
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "no metrics are taken here: " + Var + " is not set",
			Hint: "it is set for tasks of a sweep: berth sweep --help"}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(text.String())
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "tell metrics", Err: err}
	}
	return nil
}
