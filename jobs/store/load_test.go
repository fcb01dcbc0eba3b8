package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/jobs"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A FIFO, a link, a directory or gigabytes in place of a file of a record is a
// damaged record with a name: no one waits for it or reads it, and the others are
// listed.
func TestNoRegularFile(t *testing.T) {
	t.Parallel()
	for _, name := range []string{fileJob, fileCancel, fileAttempt, fileSubmitted, fileClaim, fileExit, fileDecision, fileCheckpoint} {
		for what, put := range map[string]func(path string) error{
			"fifo": func(path string) error { return syscall.Mkfifo(path, 0o600) },
			"huge": func(path string) error {
				return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 20<<30))
			},
			"link": func(path string) error { return os.Symlink("/dev/zero", path) },
		} {
			s := open(t)
			r, other := create(t, s), create(t, s)
			path := filepath.Join(r.Current().Dir, name)
			if name == fileJob || name == fileCancel {
				path = filepath.Join(r.Dir, name)
			}
			_ = os.Remove(path)
			must(t, put(path))
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if _, err := s.Load(r.Spec.ID); err == nil || !strings.Contains(err.Error(), path) || jobs.HintOf(err) == "" {
					t.Errorf("%s %s: %v (%s)", name, what, err, jobs.HintOf(err))
				}
				if list, err := s.List(); err == nil || !strings.Contains(err.Error(), path) || len(list) != 1 || list[0].Spec.ID != other.Spec.ID {
					t.Errorf("%s %s: listed %d, %v", name, what, len(list), err)
				}
			}()
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				t.Fatalf("%s %s: it is waited for", name, what)
			}
		}
	}
}

// Nor does what is read beside the records wait for a FIFO.
func TestFIFOBeside(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := create(t, s)
	dir := r.Current().Dir
	for _, path := range []string{filepath.Join(dir, FileEvents), filepath.Join(dir, fileBeat), filepath.Join(dir, fileReceipt), filepath.Join(dir, fileInside), filepath.Join(dir, fileEnv), filepath.Join(r.Dir, filePrompt), filepath.Join(s.home, fileOwner)} {
		_ = os.Remove(path)
		must(t, syscall.Mkfifo(path, 0o600))
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if e := LastEvent(dir); !e.Time.IsZero() {
			t.Error(e)
		}
		if _, err := LoadFresh(dir); err != nil {
			t.Error(err)
		}
		for name, err := range map[string]error{
			fileReceipt: second(LoadReceipt(dir)), fileInside: second(LoadInside(dir)), fileEnv: second(TakeSecrets(r.Dir, nil, true)),
			filePrompt: second(Prompt(r.Dir, 0)), fileOwner: second(s.Owner()),
		} {
			if err == nil || !strings.Contains(err.Error(), "/"+name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("it is waited for")
	}
}

func second[T any](_ T, err error) error { return err }

// TestDamaged spoils each file in each way: the error names the file, and the
// other records are listed all the same.
func TestDamaged(t *testing.T) {
	t.Parallel()
	inJob := map[string]bool{fileJob: true, fileCancel: true}
	for _, name := range []string{fileJob, fileCancel, fileAttempt, fileSubmitted, fileClaim, fileExit, fileVerdict, fileTaken} {
		for what, content := range map[string]string{
			"empty": "", "torn": `{"version": 1, "na`, "zeros": "\x00\x00\x00", "another type": `["x"]`, "two": `{"version":1} {"version":1}`,
			"newer": `{"version": 99}`, "nothing said": "null",
		} {
			s := open(t)
			r, other := create(t, s), create(t, s)
			path := filepath.Join(r.Current().Dir, name)
			if inJob[name] {
				path = filepath.Join(r.Dir, name)
			}
			must(t, os.WriteFile(path, []byte(content), 0o600))
			lenient := what == "nothing said" && name != fileJob && name != fileExit && name != fileVerdict // nothing follows from what they say
			code := jobs.CodeInfra
			if what == "newer" {
				code = jobs.CodeConfig
			}
			_, err := s.Load(r.Spec.ID)
			if lenient != (err == nil) || err != nil && (!strings.Contains(err.Error(), path) || jobs.CodeOf(err) != code || jobs.HintOf(err) == "") {
				t.Errorf("%s %s: %v, code %d, hint %q", name, what, err, jobs.CodeOf(err), jobs.HintOf(err))
			}
			list, err := s.List()
			if lenient {
				continue
			}
			if err == nil || !strings.Contains(err.Error(), path) || len(list) != 1 || list[0].Spec.ID != other.Spec.ID {
				t.Errorf("%s %s: listed %d, %v", name, what, len(list), err)
			}
			if _, err := s.Find(jobs.Short(r.Spec.ID)); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s %s: find: %v", name, what, err)
			}
		}
	}
}

func TestDamagedDirectories(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(r *jobs.Record)
		kind  jobs.Kind
	}{
		"no job.json":       {func(r *jobs.Record) { must(t, os.Remove(filepath.Join(r.Dir, fileJob))) }, jobs.KindNotFound},
		"no attempts":       {func(r *jobs.Record) { must(t, os.RemoveAll(filepath.Join(r.Dir, dirAttempts))) }, jobs.KindInfra},
		"no attempt":        {func(r *jobs.Record) { must(t, os.RemoveAll(r.Current().Dir)) }, jobs.KindInfra},
		"no attempt.json":   {func(r *jobs.Record) { must(t, os.Remove(filepath.Join(r.Current().Dir, fileAttempt))) }, jobs.KindInfra},
		"attempt is a file": {func(r *jobs.Record) { must(t, os.WriteFile(AttemptDir(r.Dir, 2), nil, 0o600)) }, jobs.KindInfra},
		"another job's": {func(r *jobs.Record) {
			must(t, os.WriteFile(filepath.Join(r.Dir, fileJob), []byte(`{"version":1,"id":"x"}`), 0o600))
		}, jobs.KindInfra},
		"job.json is a directory": {func(r *jobs.Record) {
			must(t, os.Remove(filepath.Join(r.Dir, fileJob)))
			must(t, os.Mkdir(filepath.Join(r.Dir, fileJob), 0o700))
		}, jobs.KindInfra},
	} {
		s := open(t)
		r := create(t, s)
		create(t, s)
		c.spoil(r)
		if _, err := s.Load(r.Spec.ID); jobs.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
		list, err := s.List()
		if len(list) != 1 || (err == nil) != (c.kind == jobs.KindNotFound) {
			t.Errorf("%s: listed %d, %v", name, len(list), err)
		}
	}
}

func TestAttempts(t *testing.T) {
	s := open(t)
	r := create(t, s)
	info := mustRead(t, filepath.Join(r.Current().Dir, fileAttempt))
	for _, n := range []int{2, 3, 10} {
		must(t, os.Mkdir(AttemptDir(r.Dir, n), 0o700))
		if n != 3 { // being made at this moment
			must(t, os.WriteFile(filepath.Join(AttemptDir(r.Dir, n), fileAttempt), info, 0o600))
		}
	}
	must(t, os.Mkdir(filepath.Join(r.Dir, dirAttempts, "7"), 0o700))
	got, err := s.Load(r.Spec.ID)
	must(t, err)
	var ns []int
	for _, a := range got.Attempts {
		ns = append(ns, a.N)
	}
	if d := cmp.Diff([]int{1, 2, 10}, ns); d != "" {
		t.Error(d)
	}
	if got.Current().Dir != AttemptDir(r.Dir, 10) {
		t.Error(got.Current().Dir)
	}
	if _, err := LoadAttempt(AttemptDir(r.Dir, 3)); jobs.CodeOf(err) != jobs.CodeNotFound {
		t.Error(err)
	}
	if _, err := LoadAttempt(AttemptDir(r.Dir, 4)); jobs.CodeOf(err) != jobs.CodeNotFound {
		t.Error(err)
	}
}

// TestLoadOf has a listing that does not show the last attempts yet.
func TestLoadOf(t *testing.T) {
	s := open(t)
	r := create(t, s)
	info := mustRead(t, filepath.Join(r.Current().Dir, fileAttempt))
	for _, n := range []int{2, 4} {
		must(t, os.Mkdir(AttemptDir(r.Dir, n), 0o700))
		must(t, os.WriteFile(filepath.Join(AttemptDir(r.Dir, n), fileAttempt), info, 0o600))
	}
	for own, want := range map[int][]int{1: {1}, 2: {1, 2}, 3: {1, 2}, 4: {1, 2, 4}} {
		old, err := scan(r.Dir)
		must(t, err)
		old.attempts = old.attempts[:1]
		must(t, old.extend(r.Dir, own))
		var ns []int
		for _, a := range old.attempts {
			ns = append(ns, a.n)
		}
		if d := cmp.Diff(want, ns); d != "" {
			t.Errorf("up to %d: %s", own, d)
		}
	}
	got, err := LoadOf(AttemptDir(r.Dir, 2))
	must(t, err)
	if got.Current().N != 4 {
		t.Errorf("a later attempt is not seen: %d", got.Current().N)
	}
	if _, err := LoadOf(filepath.Join(r.Dir, dirAttempts, "other")); jobs.CodeOf(err) != jobs.CodeNotFound {
		t.Error(err)
	}
}

// TestFiles writes each file once and reads the whole record back.
func TestFiles(t *testing.T) {
	s := open(t)
	r := create(t, s)
	a := r.Current()
	now := time.Now().UTC().Round(0)
	a.Submitted = &jobs.Submitted{Version: 1, Handle: jobs.Handle{Version: 1, NativeID: "7"}, Time: now}
	a.Claim = &jobs.Claim{Version: 1, Attempt: a.Info.ID, NativeID: "7", Host: "n1", PID: 3, BootID: "b", Time: now}
	a.Exit = &jobs.ExitRecord{Version: 1, State: jobs.StateFailed, Exit: jobs.Exit{Started: true, Code: 3}, Code: 1, Ended: now}
	a.Verdict = &jobs.Verdict{Version: 1, State: jobs.StateLost, Time: now}
	a.Taken = &jobs.Taken{Version: 1, Branch: "b", Time: now}
	r.Cancel = &jobs.Cancel{Version: 1, By: "alice", Time: now}
	if Cancelled(r.Dir) || HasExit(a.Dir) {
		t.Error("nothing has happened yet")
	}
	for range 2 {
		for name, set := range map[string]func() (bool, error){
			"submitted": func() (bool, error) { return SetSubmitted(a.Dir, *a.Submitted) }, "claim": func() (bool, error) { return SetClaim(a.Dir, *a.Claim) },
			"exit": func() (bool, error) { return SetExit(a.Dir, *a.Exit) }, "verdict": func() (bool, error) { return SetVerdict(a.Dir, *a.Verdict) },
			"taken": func() (bool, error) { return SetTaken(a.Dir, *a.Taken) }, "cancel": func() (bool, error) { return SetCancel(r.Dir, *r.Cancel) },
			"argv": func() (bool, error) { return SetArgv(a.Dir, []string{"a", "b"}) },
		} {
			if won, err := set(); err != nil || !won {
				t.Errorf("%s: %t, %v", name, won, err)
			}
		}
	}
	if !Cancelled(r.Dir) || !HasExit(a.Dir) {
		t.Error("what has happened is not seen")
	}
	second := *a.Exit
	second.Code = 0
	if won, err := SetExit(a.Dir, second); won || err != nil {
		t.Errorf("a second exit: %t, %v", won, err)
	}
	must(t, Beat(a.Dir, 1, now))
	first := mustRead(t, filepath.Join(a.Dir, fileBeat))
	must(t, Beat(a.Dir, 2, now))
	if now := mustRead(t, filepath.Join(a.Dir, fileBeat)); len(now) != len(first) || string(now) == string(first) {
		t.Errorf("a beat %q after %q", now, first)
	}
	got, err := s.Load(r.Spec.ID)
	must(t, err)
	if d := cmp.Diff(r, got, cmpopts.IgnoreFields(jobs.Attempt{}, "Beat")); d != "" {
		t.Error(d)
	}
	fresh, err := LoadFresh(a.Dir)
	must(t, err)
	if age := time.Since(fresh.Beat); age > time.Minute || age < -time.Minute {
		t.Errorf("the last beat was %v ago", age)
	}
	fresh.N = 1
	if d := cmp.Diff(*got.Current(), *fresh); d != "" {
		t.Error(d)
	}
	must(t, AppendEvent(a.Dir, Event{Time: now, Event: "a", Text: "b\nc"}))
	must(t, AppendEvent(a.Dir, Event{Time: now, Event: "d"}))
	if lines := strings.Count(string(mustRead(t, filepath.Join(a.Dir, FileEvents))), "\n"); lines != 2 {
		t.Errorf("%d lines of events", lines)
	}
}

func TestClaimStands(t *testing.T) {
	s := open(t)
	dir := create(t, s).Current().Dir
	mine := jobs.Claim{Version: 1, NativeID: "7", Host: "n1", BootID: "b", PID: 3, Time: time.Now().UTC()}
	if ClaimStands(dir, mine) {
		t.Error("no claim stands")
	}
	_, err := SetClaim(dir, mine)
	must(t, err)
	if !ClaimStands(dir, mine) {
		t.Error("mine does not stand")
	}
	for name, change := range map[string]func(*jobs.Claim){
		"restart": func(c *jobs.Claim) { c.Restart++ }, "pid": func(c *jobs.Claim) { c.PID++ }, "host": func(c *jobs.Claim) { c.Host = "n2" },
		"boot": func(c *jobs.Claim) { c.BootID = "c" }, "job": func(c *jobs.Claim) { c.NativeID = "8" },
	} {
		other := mine
		change(&other)
		if ClaimStands(dir, other) {
			t.Errorf("a claim with another %s stands", name)
		}
	}
	path := filepath.Join(dir, fileClaim)
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o700)) // it cannot be read: EISDIR
	if !ClaimStands(dir, mine) {
		t.Error("one that cannot be read is taken for somebody else's")
	}
}

func TestSecrets(t *testing.T) {
	s := open(t)
	n := sample(t)
	n.Secrets = []string{"A=1", "B=two\nlines", "EMPTY=", "C=ü=x"}
	r, err := s.Create(n)
	must(t, err)
	dir := r.Current().Dir
	if got, err := TakeSecrets(r.Dir, []string{"A", "D"}, false); got != nil || err == nil || !strings.Contains(err.Error(), fileEnv) {
		t.Errorf("one is missing: %q, %v", got, err)
	}
	got, err := TakeSecrets(r.Dir, []string{"A", "B", "EMPTY", "C"}, false)
	must(t, err)
	if d := cmp.Diff(n.Secrets, got); d != "" {
		t.Error(d)
	}
	must(t, os.WriteFile(filepath.Join(dir, fileEnv), []byte("A=1\x00"), 0o600))
	for range 2 {
		if got, err := TakeSecrets(r.Dir, []string{"A"}, true); len(got) != 1 || err != nil {
			t.Errorf("for a further attempt: %q, %v", got, err)
		}
	}
	DropSecrets(r.Dir)
	if got, err := TakeSecrets(r.Dir, nil, false); got != nil || err != nil {
		t.Errorf("a second time: %q, %v", got, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, fileEnv), nil, 0o600))
	if got, err := TakeSecrets(r.Dir, nil, false); got != nil || err != nil {
		t.Errorf("of an empty file: %q, %v", got, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, fileEnv), []byte("A=1\x00"), 0o600))
	DropSecrets(r.Dir)
	DropSecrets(r.Dir)
	if _, err := os.Stat(filepath.Join(dir, fileEnv)); !os.IsNotExist(err) {
		t.Error(err)
	}
	n = sample(t)
	n.Secrets, n.Prompt, n.Task = nil, nil, nil
	r, err = s.Create(n)
	must(t, err)
	for _, p := range []string{filepath.Join(r.Current().Dir, fileEnv), filepath.Join(r.Dir, filePrompt), filepath.Join(r.Dir, fileTask)} {
		if _, err := os.Stat(p); !os.IsNotExist(err) {
			t.Errorf("%s: %v", p, err)
		}
	}
	if p, err := Prompt(r.Dir, 0); p != nil || err != nil {
		t.Errorf("prompt %q, %v", p, err)
	}
}

// TestRemoveWhileListing removes records under a reader: each is there or not,
// and none is half.
func TestRemoveWhileListing(t *testing.T) {
	t.Parallel()
	s := open(t)
	var recs []*jobs.Record
	for range 60 {
		recs = append(recs, create(t, s))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, r := range recs {
			if err := s.Remove(r); err != nil {
				t.Error(err)
			}
		}
	})
	for left := len(recs); left > 0; {
		list, err := s.List()
		if err != nil {
			t.Error(err)
			break
		}
		for _, r := range list {
			if len(r.Attempts) != 1 {
				t.Errorf("%s has %d attempts", r.Spec.ID, len(r.Attempts))
			}
		}
		left = len(list)
	}
	wg.Wait()
}

// TestDamagedDecision: what someone else would record in the runner's place is
// looked at before that.
func TestDamagedDecision(t *testing.T) {
	t.Parallel()
	for content, code := range map[string]int{
		`{"version":1,"verb":"accept","state":"completed","exit":{"version":1,"state":"completed"}}`: jobs.CodeOK,
		`{"version":1,"verb":"accept","state":"completed"}`:                                          jobs.CodeOK,
		`{"version":1,"verb":"accept","state":"completed","exit":{"version":1,"state":""}}`:          jobs.CodeInfra,
		`{"version":1,"verb":"accept","state":"completed","exit":{"version":1,"state":"running"}}`:   jobs.CodeInfra,
		`{"version":1,"verb":"accept","state":"completed","exit":{"version":2,"state":"completed"}}`: jobs.CodeConfig,
		`{"version":1,"verb":"perhaps","state":"completed"}`:                                         jobs.CodeInfra,
	} {
		s := open(t)
		r := create(t, s)
		path := filepath.Join(r.Current().Dir, fileDecision)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		if _, err := s.Load(r.Spec.ID); jobs.CodeOf(err) != code || err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", content, err)
		}
	}
}
