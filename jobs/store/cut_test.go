package store

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

// full records a job with three attempts, and every file that a record has.
func full(t *testing.T, s *Store) *jobs.Record {
	t.Helper()
	n := sample(t)
	n.Spec.Retry, n.Spec.EnvNames, n.Spec.Key, n.Spec.PromptBytes = jobs.DefaultRetry(), []string{"TOKEN"}, KeyHash("k"), len(n.Prompt)
	r, err := s.Create(n)
	must(t, err)
	key, err := s.MakeKeyDir(n.Spec.Key)
	must(t, err)
	_, err = SetKey(key, Key{Job: r.Spec.ID, Parts: map[string]string{"a": "b"}})
	must(t, err)
	now := time.Now().UTC().Round(0)
	put := func(_ bool, err error) { t.Helper(); must(t, err) }
	for i := 1; i <= 3; i++ {
		dir := AttemptDir(r.Dir, i)
		if i > 1 {
			info := n.Attempt
			info.ID, info.Number = sample(t).Attempt.ID, i
			_, won, err := Begin(r.Dir, info, "#!/bin/bash\n")
			put(won, err)
		}
		put(SetSubmitted(dir, jobs.Submitted{Version: 1, Handle: jobs.Handle{Version: 1, NativeID: "7", Opaque: []byte(`{"since":1}`)}, Time: now}))
		put(SetClaim(dir, jobs.Claim{Version: 1, Attempt: "a", NativeID: "7", Restart: i, Host: "n1", PID: 3, Time: now}))
		put(SetArgv(dir, []string{"a", "b"}))
		put(SetInside(dir, jobs.Inside{Version: 1}))
		put(SetReceipt(dir, jobs.Receipt{Version: 1}))
		must(t, SetCheckpoint(dir, jobs.Checkpoint{Version: 1}))
		must(t, Beat(dir, i, now))
		must(t, AppendEvent(dir, Event{Time: now, Event: "claimed"}))
		must(t, AppendEvent(dir, Event{Time: now, Event: "started"}))
		put(SetExit(dir, jobs.ExitRecord{Version: 1, State: jobs.StateFailed, Exit: jobs.Exit{Started: true, Code: 12}, Code: 1, Ended: now}))
		put(SetVerdict(dir, jobs.Verdict{Version: 1, State: jobs.StateLost, Time: now}))
		d := jobs.Decision{Version: 1, Attempt: "a", Verb: jobs.VerbRetry, Class: jobs.ClassMemory, Time: now}
		if i == 3 {
			d.Verb, d.State = jobs.VerbAccept, jobs.StateFailed
		}
		put(SetDecision(dir, d))
		put(SetTaken(dir, jobs.Taken{Version: 1, Branch: "b", Time: now}))
	}
	put(SetCancel(r.Dir, jobs.Cancel{Version: 1, By: "alice", Time: now}))
	return r
}

// truth is all that is read of a record. The time of a beat is no content.
type truth struct {
	Record  *jobs.Record
	Key     *Key
	Secrets []string
	Prompt  []byte
	Inside  []*jobs.Inside
	Receipt []*jobs.Receipt
	State   jobs.State
}

func truthOf(s *Store, id string) (*truth, error) {
	r, err := s.Load(id)
	if err != nil {
		return nil, err
	}
	v := &truth{Record: r, State: jobs.StateOf(r)}
	if v.Key, err = LoadKey(s.KeyDir(r.Spec.Key)); err != nil {
		return nil, err
	}
	if v.Secrets, err = TakeSecrets(r.Dir, r.Spec.EnvNames, true); err != nil {
		return nil, err
	}
	if v.Prompt, err = Prompt(r.Dir, r.Spec.PromptBytes); err != nil {
		return nil, err
	}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		in, err := LoadInside(a.Dir)
		if err != nil {
			return nil, err
		}
		rc, err := LoadReceipt(a.Dir)
		if err != nil {
			return nil, err
		}
		v.Inside, v.Receipt = append(v.Inside, in), append(v.Receipt, rc)
		_ = LastEvent(a.Dir)
		a.Beat = time.Time{}
	}
	return v, nil
}

// loose are the files of which nothing that is read here follows: the task file
// and the scripts are kept for people, a cut line of events is left out.
var loose = map[string]bool{fileTask: true, fileScript: true, fileArgv: true, fileBeat: true, FileEvents: true}

// TestCut cuts each file of a record, those of the job and of its last attempt
// at each byte: what is read is the truth as before, or an error that names the
// file. No write changes that.
func TestCut(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := full(t, s)
	id := r.Spec.ID
	whole, err := truthOf(s, id)
	must(t, err)
	var files []string
	for _, root := range []string{r.Dir, s.KeyDir(whole.Record.Spec.Key)} {
		must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				files = append(files, path)
			}
			return err
		}))
	}
	if len(files) < 3*13+4 {
		t.Fatalf("%d files: %q", len(files), files)
	}
	for _, path := range files {
		data := mustRead(t, path)
		name := filepath.Base(path)
		// Attempts are read alike, so the earlier ones are cut here and there only.
		each := 1
		if strings.Contains(path, "/"+dirAttempts+"/") && !strings.HasPrefix(path, AttemptDir(r.Dir, 3)) {
			each = 16
		}
		for n := range data {
			if ends := n < 2 || n == len(data)/2 || n >= len(data)-2; !ends && n%each != 0 {
				continue
			}
			must(t, os.WriteFile(path, data[:n], 0o600))
			check := func(when string) {
				got, err := truthOf(s, id)
				switch {
				case err != nil && (!strings.Contains(err.Error(), path) || jobs.HintOf(err) == ""):
					t.Fatalf("%s cut at %d%s: %v (hint: %s)", name, n, when, err, jobs.HintOf(err))
				case err == nil && !reflect.DeepEqual(got, whole):
					t.Fatalf("%s cut at %d%s is read as something else: %+v", name, n, when, got)
				case err == nil && !loose[name] && n < len(data)-1:
					t.Fatalf("%s cut at %d%s is read as if it were whole", name, n, when)
				}
			}
			check("")
			if n == 0 || n == 1 || n == len(data)/2 || n == len(data)-1 {
				writeAll(t, r)
				check(" and written upon")
				if now := mustRead(t, path); name != fileBeat && name != FileEvents && name != fileCheckpoint && !bytes.Equal(now, data[:n]) {
					t.Fatalf("%s cut at %d: a write has changed it", name, n)
				}
			}
		}
		must(t, os.WriteFile(path, data, 0o600))
	}
	if now, err := truthOf(s, id); err != nil || !reflect.DeepEqual(now, whole) {
		t.Errorf("made whole again it is something else: %v", err)
	}
}

// writeAll tries to write other things into all files: each was there first.
func writeAll(t *testing.T, r *jobs.Record) {
	t.Helper()
	now := time.Now().UTC()
	for i := 1; i <= 3; i++ {
		dir := AttemptDir(r.Dir, i)
		for name, set := range map[string]func() (bool, error){
			"submitted": func() (bool, error) { return SetSubmitted(dir, jobs.Submitted{Version: 1, Time: now}) },
			"claim":     func() (bool, error) { return SetClaim(dir, jobs.Claim{Version: 1, Host: "n2"}) },
			"exit":      func() (bool, error) { return SetExit(dir, jobs.ExitRecord{Version: 1, State: jobs.StateCompleted}) },
			"verdict":   func() (bool, error) { return SetVerdict(dir, jobs.Verdict{Version: 1, State: jobs.StateError}) },
			"decision": func() (bool, error) {
				return SetDecision(dir, jobs.Decision{Version: 1, Verb: jobs.VerbAccept, State: jobs.StateCompleted})
			},
			"taken":  func() (bool, error) { return SetTaken(dir, jobs.Taken{Version: 1, Branch: "c"}) },
			"cancel": func() (bool, error) { return SetCancel(r.Dir, jobs.Cancel{Version: 1, By: "bob"}) },
		} {
			if won, err := set(); won || err != nil {
				t.Fatalf("%s of attempt %d was written anew: %v", name, i, err)
			}
		}
		if _, won, err := Begin(r.Dir, jobs.AttemptInfo{Version: 1, ID: "other", Number: i}, "x"); won {
			t.Fatalf("attempt %d was begun anew: %v", i, err)
		}
		_ = TakeBack(r.Dir, jobs.AttemptInfo{ID: r.Attempts[0].Info.ID, Number: i}) // an error, or nothing
	}
}
