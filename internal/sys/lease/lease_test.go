package lease

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func owner(name string) Owner {
	p := Self()
	return Owner{Version: 1, Environment: name, Dir: "/x", Host: p.Host, BootID: p.BootID, PID: p.PID, Start: p.Start, Time: time.Now().UTC()}
}

func TestStands(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "env")
	if o, err := Holder(dir); o != nil || err == nil {
		t.Errorf("%+v, %v", o, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if o, err := Holder(dir); o != nil || err != nil {
		t.Errorf("%+v, %v", o, err)
	}
	first, err := Acquire(dir, owner("first"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var held *HeldError
	if _, err := Acquire(dir, owner("second"), func(Owner) bool { return false }); !errors.As(err, &held) || held.Owner.Environment != "first" || held.Error() == "" {
		t.Errorf("%v", err)
	}
	if o, err := Holder(dir); err != nil || o.Environment != "first" || o.Process() != Self() || !first.Stands() {
		t.Errorf("%+v, %v", o, err)
	}
	second, err := Acquire(dir, owner("second"), func(Owner) bool { return true })
	if err != nil || first.Stands() || !second.Stands() {
		t.Errorf("%v", err)
	}
	if err := errors.Join(first.Release(), second.Release(), second.Release()); err != nil {
		t.Error(err)
	}
	if o, err := Holder(dir); o != nil || err != nil {
		t.Errorf("%+v, %v", o, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if second.Stands() || second.Release() != nil {
		t.Error("a lease of nothing")
	}
}

// The holder of a directory that was removed and made again has nothing of the
// new one, though both leases have the same number.
func TestMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "env")
	take := func(name string) *Lease {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := Acquire(dir, owner(name), nil)
		if err != nil || !l.Stands() {
			t.Fatal(err)
		}
		return l
	}
	old := take("one")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := old.Release(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Errorf("the old one has left something: %v", err)
	}
	now := take("one")
	if old.Stands() {
		t.Error("the old one stands")
	}
	if err := old.Release(); err != nil {
		t.Error(err)
	}
	if o, err := Holder(dir); err != nil || o == nil || !now.Stands() {
		t.Errorf("the new one was given back: %+v, %v", o, err)
	}
	if err := now.Release(); err != nil {
		t.Error(err)
	}
	if o, err := Holder(dir); err != nil || o != nil {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestProcessGone(t *testing.T) {
	me := Self()
	const nobody = 1 << 30 // beyond the largest pid_max
	for name, c := range map[string]struct {
		change     func(*Process)
		near, gone bool
	}{
		"myself":          {func(*Process) {}, true, false},
		"dead":            {func(p *Process) { p.PID = nobody }, true, true},
		"another":         {func(p *Process) { p.Start = "1" }, true, true},
		"start not known": {func(p *Process) { p.Start = "" }, true, false},
		"other boot":      {func(p *Process) { p.BootID = "other/1" }, false, true},
		"other namespace": {func(p *Process) { p.BootID += "0"; p.PID = nobody }, false, false},
		"other host":      {func(p *Process) { p.Host = "elsewhere"; p.PID = nobody }, false, false},
		"no host":         {func(p *Process) { p.Host = ""; p.PID = nobody }, false, false},
		"no boot":         {func(p *Process) { p.BootID = ""; p.PID = nobody }, false, false},
	} {
		p := me
		c.change(&p)
		if p.Near(me) != c.near || p.Gone(me) != c.gone {
			t.Errorf("%s: near %v, gone %v", name, p.Near(me), p.Gone(me))
		}
	}
}
