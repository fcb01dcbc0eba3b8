package external

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
)

// keeping is a backend whose program answers snapshot, list and restore as
// wanted, everything else with an empty object, and keeps each request.
func keeping(t *testing.T, snapshot, list, restore string) (*box, jobs.SnapshotPlace) {
	t.Helper()
	x := &box{dir: t.TempDir(), record: t.TempDir()}
	path := program(t, `cp "$2" `+x.record+`/$1; case $1 in
check) echo '{"ok":{"version":"1","level":"fs","snapshots":true}}';;
snapshot) `+snapshot+`;;
list) `+list+`;;
restore) `+restore+`;;
*) echo '{"ok":{}}';; esac`)
	home := t.TempDir()
	x.b = &Backend{Word: "fake", On: run.Local{}, Home: home, Builtin: path, Owner: func() (string, error) { return strings.Repeat("a", 32), nil }}
	x.s = &jobs.EnvSpec{
		ID: "01a200da-47cb-737b-ab0a-b3b956ffd23e", Name: "demo", Persistent: true, User: "ada", Home: home,
		Place: jobs.Place{
			Backend: "fake", Level: jobs.LevelFS, External: &jobs.ExternalSpec{Program: path, Owner: strings.Repeat("a", 32), Life: time.Hour},
		},
	}
	none := func() {}
	return x, jobs.SnapshotPlace{Dir: x.dir, On: run.Local{}, Progress: func(string) {}, Open: func(context.Context) error { return nil }, Hold: func() (func(), error) { return none, nil }}
}

const serviceName = "berth-snap-aaaaaaaaaaaaaaaa-"

func says(line string) string { return "echo '" + line + "'" }

func TestSnapshot(t *testing.T) {
	x, at := keeping(t, says(`{"ok":{"snapshot":{"name":"`+serviceName+`good","id":"im-1","bytes":7}}}`), "", says(`{"ok":{"ref":"sb-2","notes":["slow"]}}`))
	opened := 0
	at.Open = func(context.Context) error { opened++; return nil }
	s, err := x.b.Snapshot(t.Context(), x.s, "good", at)
	if err != nil || s.ID != "im-1" || s.Bytes != 7 || s.Unclear || s.Environment != "demo" || opened != 1 {
		t.Fatalf("%+v %v", s, err)
	}
	if r := x.asked(t, "snapshot"); r.Snapshot != serviceName+"good" || r.Name != "berth-01a200da47cb737bab0ab3b956ffd23e-demo" || r.Tags["berth-env"] != x.s.ID || r.Spec != nil {
		t.Errorf("%+v", r)
	}
	_, err = x.b.Snapshot(t.Context(), x.s, "good", at)
	wantError(t, err, jobs.KindUsage, "there is a snapshot good of the environment demo already")
	_, err = x.b.Snapshot(t.Context(), x.s, "../x", at)
	wantError(t, err, jobs.KindUsage, `"../x" cannot name a snapshot`)
	if err := x.b.Restore(t.Context(), x.s, "good", at); err != nil || opened != 3 {
		t.Errorf("%v, opened %d times", err, opened)
	}
	if r := x.asked(t, "restore"); r.Snapshot != serviceName+"good" || r.Spec == nil || r.Spec.LifetimeSeconds != 3600 || r.Tags["berth-env"] != x.s.ID {
		t.Errorf("%+v", r)
	}
	if m, err := Load(x.dir); err != nil || m.Ref != "sb-2" {
		t.Errorf("%+v %v", m, err)
	}
	wantError(t, x.b.Restore(t.Context(), x.s, "bad", at), jobs.KindNotFound, "there is no snapshot bad of the backend fake")
	at.Hold = func() (func(), error) { return nil, errors.New("somebody has it") }
	if err := os.Remove(filepath.Join(x.record, "restore")); err != nil {
		t.Fatal(err)
	}
	if err := x.b.Restore(t.Context(), x.s, "good", at); err == nil || x.asked(t, "restore") != nil {
		t.Errorf("while somebody has it: %v", err)
	}
	list, err := x.b.Snapshots(x.s.Home, x.s)
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	if list, err := x.b.Snapshots(x.s.Home, &jobs.EnvSpec{ID: "another"}); err != nil || len(list) != 0 {
		t.Errorf("of another one: %+v %v", list, err)
	}
	if err := x.b.RemoveSnapshot(t.Context(), x.s.Home, list[0], run.Local{}); err != nil {
		t.Fatal(err)
	}
	if r := x.asked(t, "destroy"); r.Snapshot != serviceName+"good" || r.Tags["berth-owner"] != x.s.External.Owner || r.Tags["berth-env"] != x.s.ID {
		t.Errorf("%+v", r)
	}
	if list, err := x.b.Snapshots(x.s.Home, nil); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
}

// What is not known to be there is recorded as unclear; what is known not to be
// there is not recorded.
func TestSnapshotIsNotLiedTo(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		said   string
		stays  bool
		kind   jobs.Kind
	}{
		"no answer":       {"exit 3", "ended (exit code 3) without an answer", true, jobs.KindUnclear},
		"killed":          {"kill -9 $$", "without an answer", true, jobs.KindUnclear},
		"nothing":         {says(`{"ok":{}}`), "it gives no snapshot's name", true, jobs.KindUnclear},
		"no id":           {says(`{"ok":{"snapshot":{"name":"` + serviceName + `x"}}}`), "it gives no snapshot's id", true, jobs.KindUnclear},
		"another name":    {says(`{"ok":{"snapshot":{"name":"other","id":"1"}}}`), `x was asked for, and it says "other"`, true, jobs.KindUnclear},
		"an id as a flag": {says(`{"ok":{"snapshot":{"name":"` + serviceName + `x","id":"--all"}}}`), "begins with a dash", true, jobs.KindUnclear},
		"less than none":  {says(`{"ok":{"snapshot":{"name":"` + serviceName + `x","id":"1","bytes":-1}}}`), "it has -1 bytes", true, jobs.KindUnclear},
		"unclear":         {says(`{"error":{"kind":"unclear","message":"who knows"}}`), "who knows", true, jobs.KindUnclear},
		"quota":           {says(`{"error":{"kind":"quota","message":"full"}}`), "full", false, jobs.KindAgain},
		"conflict":        {says(`{"error":{"kind":"conflict","message":"taken"}}`), "taken", false, jobs.KindConfig},
		"unsupported":     {says(`{"error":{"kind":"unsupported","message":"no such thing"}}`), "no such thing", false, jobs.KindConfig},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, at := keeping(t, c.answer, "", "")
			_, err := x.b.Snapshot(t.Context(), x.s, "x", at)
			wantError(t, err, c.kind, c.said)
			list, err := x.b.Snapshots(x.s.Home, nil)
			if err != nil || (len(list) == 1) != c.stays || c.stays && !list[0].Unclear {
				t.Fatalf("recorded: %+v %v", list, err)
			}
			if !c.stays {
				return
			}
			// No one takes it for one that is there.
			wantError(t, x.b.Restore(t.Context(), x.s, "x", at), jobs.KindUnclear, "it is not known whether the snapshot x was made")
			_, err = x.b.Snapshot(t.Context(), x.s, "x", at)
			wantError(t, err, jobs.KindAgain, "begun a moment ago")
			if x.asked(t, "destroy") != nil {
				t.Error("somebody else's was destroyed")
			}
		})
	}
}

// Of all that find an old record of which no one knows how it ended, one makes the
// snapshot again: another one would destroy what that makes.
func TestOldSnapshotIsMadeAgainOnce(t *testing.T) {
	x, _ := keeping(t, "", "", "")
	record := func(age time.Duration) *kept {
		return &kept{Version: 1, External: *x.s.External, Snapshot: jobs.Snapshot{Name: "old", Backend: "fake", Environment: "demo", EnvID: x.s.ID, Created: time.Now().UTC().Add(-age), Unclear: true}}
	}
	for round := range 5 {
		old := record(time.Hour)
		if _, err := old.begin(x.s.Home); err != nil {
			t.Fatal(err)
		}
		var won atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				switch last, err := record(0).begin(x.s.Home); {
				case err == nil && last:
					won.Add(1)
				case jobs.KindOf(err) != jobs.KindAgain || jobs.HintOf(err) == "":
					t.Errorf("%v %v", last, err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Errorf("round %d: %d make it", round, won.Load())
		}
		// One that has read the old record, and comes when it was made again.
		if err := record(0).again(x.s.Home, old); jobs.KindOf(err) != jobs.KindAgain {
			t.Error(err)
		}
		if err := old.forget(x.s.Home); err != nil {
			t.Fatal(err)
		}
		if err := record(0).again(x.s.Home, old); jobs.KindOf(err) != jobs.KindAgain {
			t.Error(err)
		}
		left, err := os.ReadDir(snapshotsDir(x.s.Home, "fake"))
		if err != nil || len(left) != 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
}

func TestRestoreIsNotLiedTo(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		kind   jobs.Kind
		said   string
	}{
		"no ref":    {says(`{"ok":{}}`), jobs.KindInfra, "it gives no ref"},
		"a bad ref": {says(`{"ok":{"ref":"--x"}}`), jobs.KindInfra, "its ref begins with a dash"},
		"gone":      {says(`{"error":{"kind":"not_found","message":"no snapshot"}}`), jobs.KindNotFound, "no snapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, at := keeping(t, says(`{"ok":{"snapshot":{"name":"`+serviceName+`x","id":"1"}}}`), "", c.answer)
			if _, err := x.b.Snapshot(t.Context(), x.s, "x", at); err != nil {
				t.Fatal(err)
			}
			at.Open = func(context.Context) error { t.Error("it was opened"); return nil }
			wantError(t, x.b.Restore(t.Context(), x.s, "x", at), c.kind, c.said)
			if m, err := Load(x.dir); m != nil || err != nil {
				t.Errorf("it is recorded: %+v %v", m, err)
			}
		})
	}
}

func TestServiceWithoutSnapshots(t *testing.T) {
	x, at := keeping(t, "", "", "")
	x.b.Builtin = checked(t, "").Builtin
	at.Open = func(context.Context) error { t.Error("it was opened"); return nil }
	_, err := x.b.Snapshot(t.Context(), x.s, "x", at)
	wantError(t, err, jobs.KindConfig, "the backend fake has no snapshots")
	if list, err := x.b.Snapshots(x.s.Home, nil); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
}

// gc takes what tags prove to be ours and is not recorded, and what was begun long
// ago; nothing that only looks like it.
func TestLostSnapshots(t *testing.T) {
	owner := strings.Repeat("a", 32)
	ours := `"tags":{"berth":"1","berth-owner":"` + owner + `","berth-env":"e"}`
	x, at := keeping(t, says(`{"ok":{"snapshot":{"name":"`+serviceName+`whole","id":"1"}}}`), says(`{"ok":{"found":[],"snapshots":[`+strings.Join([]string{
		`{"name":"` + serviceName + `whole","id":"1",` + ours + `}`,
		`{"name":"` + serviceName + `lost","id":"2",` + ours + `}`,
		`{"name":"` + serviceName + `untold","id":"3"}`,
		`{"name":"` + serviceName + `theirs","id":"4","tags":{"berth":"1","berth-owner":"b"}}`,
		`{"name":"my-own","id":"5",` + ours + `}`,
		`{"name":"` + serviceName + `..","id":"6",` + ours + `}`,
	}, ",")+`]}}`), "")
	if _, err := x.b.Snapshot(t.Context(), x.s, "whole", at); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"young": time.Minute, "old": time.Hour} {
		k := &kept{Version: 1, External: *x.s.External, Snapshot: jobs.Snapshot{Name: name, Backend: "fake", Environment: "demo", EnvID: x.s.ID, Created: time.Now().Add(-age), Unclear: true}}
		if _, err := k.begin(x.s.Home); err != nil {
			t.Fatal(err)
		}
	}
	found, err := x.b.List(t.Context(), run.Local{})
	var names []string
	for _, f := range found {
		names = append(names, f.What+" "+f.Ref)
	}
	if err != nil || strings.Join(names, ", ") != "snapshot "+serviceName+"old, snapshot "+serviceName+"lost" {
		t.Fatalf("%q %v", names, err)
	}
	for _, f := range found {
		if err := x.b.Reap(t.Context(), run.Local{}, f); err != nil {
			t.Error(err)
		}
		if r := x.asked(t, "destroy"); r.Snapshot != f.Ref || r.Tags["berth-owner"] != owner || r.Name == "" && f.Name == "old" {
			t.Errorf("%+v", r)
		}
	}
	list, err := x.b.Snapshots(x.s.Home, nil)
	if err != nil || len(list) != 2 || list[0].Name != "whole" || list[1].Name != "young" {
		t.Errorf("%+v %v", list, err)
	}
	// A record that cannot be read makes nothing an orphan.
	if err := os.WriteFile(filepath.Join(snapshotsDir(x.s.Home, "fake"), "torn.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = x.b.List(t.Context(), run.Local{})
	wantError(t, err, jobs.KindInfra, "read the record of the snapshot torn")
}
