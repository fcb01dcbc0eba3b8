package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	"berth/jobs"
)

func TestErrorChains(t *testing.T) {
	plain := errors.New("plain")
	inner := &jobs.Error{Kind: jobs.KindNotFound, Msg: "no image", Hint: "pull it", Err: fs.ErrNotExist}
	bare := &jobs.Error{Kind: jobs.KindAuth, Msg: "denied"}
	unclassified := &jobs.Error{Msg: "step", Err: inner}
	var none *jobs.Error
	for name, c := range map[string]struct {
		err  error
		kind jobs.Kind
		hint string
		code int
	}{
		"nil":                      {nil, jobs.KindUnknown, "", 0},
		"plain":                    {plain, jobs.KindUnknown, "", 5},
		"context":                  {context.Canceled, jobs.KindUnknown, "", 5},
		"itself":                   {inner, jobs.KindNotFound, "pull it", 3},
		"wrapped":                  {fmt.Errorf("a: %w", fmt.Errorf("b: %w", inner)), jobs.KindNotFound, "pull it", 3},
		"an outer kind wins":       {&jobs.Error{Kind: jobs.KindConfig, Msg: "x", Err: inner}, jobs.KindConfig, "pull it", 78},
		"an outer hint wins":       {&jobs.Error{Kind: jobs.KindConfig, Msg: "x", Hint: "first", Err: inner}, jobs.KindConfig, "first", 78},
		"an unclassified wrapper":  {unclassified, jobs.KindNotFound, "pull it", 3},
		"joined, first":            {errors.Join(inner, bare), jobs.KindNotFound, "pull it", 3},
		"joined, hint in second":   {errors.Join(bare, inner), jobs.KindAuth, "pull it", 4},
		"joined after plain":       {errors.Join(plain, inner), jobs.KindNotFound, "pull it", 3},
		"joined, hint far inside":  {fmt.Errorf("w: %w", errors.Join(plain, &jobs.Error{Kind: jobs.KindAgain, Err: errors.Join(bare, inner)})), jobs.KindAgain, "pull it", 75},
		"two verbs":                {fmt.Errorf("%w and %w", bare, inner), jobs.KindAuth, "pull it", 4},
		"hint beside an own cause": {errors.Join(&jobs.Error{Kind: jobs.KindUsage, Err: plain}, inner), jobs.KindUsage, "pull it", 2},
		"a nil pointer":            {none, jobs.KindUnknown, "", 5},
	} {
		if c.err != nil {
			if got := jobs.KindOf(c.err); got != c.kind {
				t.Errorf("%s: kind %d, want %d", name, got, c.kind)
			}
		}
		if got := jobs.HintOf(c.err); got != c.hint {
			t.Errorf("%s: hint %q, want %q", name, got, c.hint)
		}
		if got := jobs.CodeOf(c.err); got != c.code {
			t.Errorf("%s: code %d, want %d", name, got, c.code)
		}
	}
	if !errors.Is(unclassified, fs.ErrNotExist) {
		t.Error("the cause is not found")
	}
}

func TestCodes(t *testing.T) {
	for kind, want := range map[jobs.Kind]int{
		jobs.KindUnknown: 5, jobs.KindUsage: 2, jobs.KindNotFound: 3, jobs.KindAuth: 4, jobs.KindInfra: 5, jobs.KindAgain: 75,
		jobs.KindConfig: 78, jobs.KindRejected: 2, jobs.KindUnclear: 5,
	} {
		if got := jobs.CodeOf(&jobs.Error{Kind: kind}); got != want {
			t.Errorf("kind %d has code %d, want %d", kind, got, want)
		}
	}
}

func TestErrorText(t *testing.T) {
	cause := errors.New("no space left")
	for _, c := range []struct {
		err  *jobs.Error
		want string
	}{
		{&jobs.Error{Msg: "write"}, "write"},
		{&jobs.Error{Msg: "write", Err: cause, Hint: "df -h"}, "write: no space left"},
		{&jobs.Error{Err: cause}, "no space left"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestCheckText(t *testing.T) {
	for s, ok := range map[string]bool{
		"": true, "Fix the parser": true, `a'b"c$d`: true, "größe 漢字 🙂": true, "non\u00a0breaking": true,
		"a\nb": false, "a\rb": false, "a\tb": false, "a\x00b": false, "\x1b[2J": false, "a\x7f": false, "a\u0085b": false, "a\u2028b": false, "a\u2029b": false, "a\xffb": false,
	} {
		err := jobs.CheckText("the name", s)
		if (err == nil) != ok {
			t.Errorf("CheckText(%q) = %v", s, err)
		}
		if err != nil && (jobs.CodeOf(err) != jobs.CodeUsage || !strings.HasPrefix(err.Error(), "the name ")) {
			t.Errorf("CheckText(%q) = %v, code %d", s, err, jobs.CodeOf(err))
		}
	}
}

func FuzzCheckText(f *testing.F) {
	f.Add("plain")
	f.Add("a\n#SBATCH --wrap=x")
	f.Add("\xff")
	f.Fuzz(func(t *testing.T, s string) {
		err := jobs.CheckText("x", s)
		if err == nil && (strings.ContainsAny(s, "\n\r\x00\x1b\u0085\u2028\u2029") || !utf8.ValidString(s)) {
			t.Errorf("%q passes", s)
		}
		if err != nil && strings.ContainsFunc(err.Error(), func(r rune) bool { return r < 0x20 }) {
			t.Errorf("the error repeats what it refuses: %q", err)
		}
	})
}
