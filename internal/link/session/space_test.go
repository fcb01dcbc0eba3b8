//go:build linux

package session_test

import (
	"testing"

	"berth/internal/link/session"
	"berth/jobs"
)

func TestSpaceFull(t *testing.T) {
	const mib, gib = int64(jobs.MiB), int64(jobs.GiB)
	for name, c := range map[string]struct {
		s    session.Space
		want string
	}{
		"unknown":          {session.Space{}, ""},
		"empty":            {session.Space{Size: gib, Free: gib}, ""},
		"full":             {session.Space{Size: gib, Free: 0}, "is full (0B of 1GiB free)"},
		"nearly":           {session.Space{Size: gib, Free: 5 * mib}, "is full (5MiB of 1GiB free)"},
		"less than that":   {session.Space{Size: gib, Free: 9 * mib}, ""},
		"large":            {session.Space{Size: 1024 * gib, Free: 20 * mib}, ""},
		"small":            {session.Space{Size: 28 * mib, Free: 300 << 10}, "is full (0B of 28MiB free)"},
		"no files":         {session.Space{Size: gib, Free: gib, Files: 200, FreeFiles: 1}, "holds as many files as it can (200)"},
		"files uncounted":  {session.Space{Size: gib, Free: gib}, ""},
		"some files":       {session.Space{Size: gib, Free: gib, Files: 200, FreeFiles: 20}, ""},
		"more than is had": {session.Space{Size: gib, Free: -1}, "is full (0B of 1GiB free)"},
	} {
		if got := c.s.Full(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestSpace(t *testing.T) {
	p := open(t, session.Options{Home: t.TempDir(), WritableRoot: false})
	if s, err := p.s.Space(p.ctx, "/proc"); err != nil || s != (session.Space{}) {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := p.s.Space(p.ctx, "~"); err != nil || s.Size <= 0 || s.Free > s.Size || s.FreeFiles > s.Files {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := p.s.Space(p.ctx, "/none"); jobs.CodeOf(err) != jobs.CodeNotFound {
		t.Error(err)
	}
}
