package keys

import (
	"strconv"
	"time"

	"berth/internal/config/strict"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

// number returns the text of a string or a whole number.
func number(v strict.Value, what string) string {
	switch {
	case !v.Given():
		return ""
	case v.Is(strict.Int):
		return strconv.FormatInt(v.Whole(), 10)
	case v.Is(strict.String):
		return v.Text()
	}
	v.MustBe(what)
	return ""
}

// Size reads a size such as "512MiB", or a whole number of MiB.
func Size(v strict.Value) jobs.Bytes {
	s := number(v, `a size such as "512MiB", or a whole number of MiB`)
	if s == "" {
		return 0
	}
	b, err := jobs.ParseBytes(s)
	if err != nil {
		v.Fail(err)
	}
	return b
}

// Duration reads a duration such as "2h", or a whole number of seconds.
func Duration(v strict.Value) time.Duration {
	s := number(v, `a duration such as "2h", or a whole number of seconds`)
	if s == "" {
		return 0
	}
	d, err := jobs.ParseDuration(s)
	if err != nil {
		v.Fail(err)
	}
	return d
}

// USD reads an amount of US dollars: 5, 0.50 or "0.50".
func USD(v strict.Value) jobs.USD {
	if !v.Given() {
		return 0
	}
	if !v.Is(strict.Number) && !v.Is(strict.Int) && !v.Is(strict.String) {
		v.MustBe("an amount of US dollars such as 5 or 0.50")
		return 0
	}
	u, err := jobs.ParseUSD(v.Source())
	if err != nil {
		v.Fail(err)
	}
	return u
}

var gpuForm = pattern.Lazy(`^(?:[A-Za-z0-9][A-Za-z0-9_.-]*:)?([0-9]{1,7})$`)

// GPUs reads a number, or "TYPE:NUMBER".
func GPUs(v strict.Value) string {
	s := number(v, `a whole number, or a string such as "a100:2"`)
	if s == "" {
		return ""
	}
	m := gpuForm().FindStringSubmatch(s)
	if m == nil {
		v.Failf("", `must be a number or "TYPE:NUMBER" such as "a100:2", found %q`, s)
		return ""
	}
	if n, err := strconv.Atoi(m[1]); err != nil || n < 1 || n > most || m[1][0] == '0' {
		v.Failf("", "must ask for 1 GPU or more, found %q", s)
		return ""
	}
	return s
}
