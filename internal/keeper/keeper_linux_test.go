package keeper

import (
	"strings"
	"testing"

	"berth/internal/guest/wire"
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
	c.sh("s", "cd /usr; X=1")
	st := d.state()
	if st.PID != e.info().PID || st.Running != 0 || strings.Join(st.Sessions, " ") != "s" || string(st.Guest.Home) != e.tmp || st.MaxRSS == 0 {
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
