package keeper

import (
	"strings"
	"testing"

	"berth/internal/link/wire"
)

func TestOpenAndExec(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c := e.open()
	if c.rep.Rebuilt != "" || strings.Join(c.rep.Notes, "") != "a note" || c.rep.Opened.IsZero() {
		t.Errorf("%+v", c.rep)
	}
	out, res := c.sh("", `echo "$FROM_SPEC $BOTH $HOME"; exit 3`)
	if out != "spec spec "+e.tmp+"\n" || res.Exit.Code != 3 {
		t.Errorf("%q, %+v", out, res)
	}
	// A second client reaches the same keeper, and the same sessions.
	d := e.open()
	if d.rep.Opened != c.rep.Opened || len(d.rep.Notes) > 0 {
		t.Errorf("%+v, %+v", c.rep, d.rep)
	}
	if out, res := c.sh("s", "cd /usr; X=1"); out != "" || res.Dir != "/usr" {
		t.Errorf("%q, %+v", out, res)
	}
	if out, _ := d.sh("s", `echo "$PWD $X"`); out != "/usr 1\n" {
		t.Errorf("%q", out)
	}
	if out, _ := d.sh("other", `echo "$PWD $X"`); out != e.tmp+" \n" {
		t.Errorf("%q", out)
	}
	// A background process begins with a session's state, and changes nothing.
	b := d.bg(wire.KeepRequest{Op: wire.KeepBGStart, Start: &wire.StartMessage{Shell: "echo $PWD $X; X=2; cd /", Session: "s"}})
	if got := c.logOf(wire.KeepRequest{ID: b.ID, Follow: true}); got != "/usr 1\n" {
		t.Errorf("%q", got)
	}
	if out, _ := c.sh("s", `echo "$PWD $X"`); out != "/usr 1\n" {
		t.Errorf("%q", out)
	}
	st := d.state()
	if st.PID != e.info().PID || st.Running != 0 || strings.Join(st.Sessions, " ") != "other s" || string(st.Guest.Home) != e.tmp || st.MaxRSS == 0 {
		t.Errorf("%+v", st)
	}
	if _, err := d.keep(wire.KeepRequest{Op: wire.KeepStop}, nil, nil); err == nil {
		t.Error("an answer to a stop")
	}
	<-c.Gone()
	<-d.Gone()
	if i := e.info(); i.Running || i.Why != "it was stopped" || Alive(e.dir) {
		t.Errorf("%+v", i)
	}
}
