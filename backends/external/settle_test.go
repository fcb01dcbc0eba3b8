package external

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/backends/external/protocol"
	"berth/internal/sys/run"
	"berth/jobs"
)

// checked is a backend whose program answers check with fields.
func checked(t *testing.T, fields string) *Backend {
	t.Helper()
	path := program(t, `echo '{"ok":{"version":"1","level":"vm"`+fields+`}}'`)
	return &Backend{Word: "fake", On: run.Local{}, Owner: func() (string, error) { return strings.Repeat("a", 32), nil }, Builtin: path}
}

const able = `,"limits":["cpus","memory"],"network":["open","none"],"image":true,"persistent":true,"gpu":["nvidia"],"max_lifetime_seconds":7200,"options":["region"],"notes":["slow today"]`

func TestSettle(t *testing.T) {
	b := checked(t, able)
	s := &jobs.EnvSpec{
		Name: "demo", Persistent: true, Defaulted: []string{"memory", "disk"},
		Place: jobs.Place{
			Backend: "fake", Image: "debian:12", GPU: "nvidia", Network: jobs.Network{Mode: "none"}, Resources: jobs.Resources{CPUs: 1, Memory: jobs.GiB, Disk: jobs.GiB}, External: &jobs.ExternalSpec{Options: map[string]string{"region": "eu"}},
		},
	}
	if err := b.Settle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if s.Level != jobs.LevelVM || s.External.Owner != strings.Repeat("a", 32) || s.External.Life != 2*time.Hour || s.Resources.Disk != 0 || s.Resources.Memory != jobs.GiB || strings.Join(s.Defaulted, " ") != "memory" || !s.Persistent {
		t.Errorf("%+v %+v", s, s.External)
	}
	if got := strings.Join(s.Notes, "|"); got != "the limit disk 1GiB is not held by the backend fake|slow today" {
		t.Errorf("%q", got)
	}
}

func TestSettleRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		can  string
		s    jobs.EnvSpec
		kind jobs.Kind
		said string
	}{
		"an image":           {"", jobs.EnvSpec{Place: jobs.Place{Image: "debian:12"}}, jobs.KindConfig, "an image is not available on the backend fake"},
		"a GPU":              {able, jobs.EnvSpec{Place: jobs.Place{GPU: "amd"}}, jobs.KindConfig, "the GPU amd is not available"},
		"no network":         {"", jobs.EnvSpec{Place: jobs.Place{Network: jobs.Network{Mode: "none"}}}, jobs.KindConfig, "a network that is shut off is not available"},
		"a list":             {able, jobs.EnvSpec{Place: jobs.Place{External: &jobs.ExternalSpec{Allow: []string{"example.com"}}}}, jobs.KindConfig, "a network with a list of what is allowed is not available"},
		"an open one":        {`,"network":["none"]`, jobs.EnvSpec{}, jobs.KindConfig, "an open network is not available"},
		"a limit":            {able, jobs.EnvSpec{Place: jobs.Place{Resources: jobs.Resources{Disk: jobs.GiB}}}, jobs.KindConfig, "the limit disk 1GiB cannot be held"},
		"a strict limit":     {able, jobs.EnvSpec{Strict: true, Defaulted: []string{"disk"}, Place: jobs.Place{Resources: jobs.Resources{Disk: jobs.GiB}}}, jobs.KindConfig, "the limit disk 1GiB cannot be held"},
		"a long life":        {able, jobs.EnvSpec{Place: jobs.Place{External: &jobs.ExternalSpec{Life: 3 * time.Hour}}}, jobs.KindConfig, "lives for 2h0m0s at most, and 3h0m0s was asked for"},
		"an option":          {able, jobs.EnvSpec{Place: jobs.Place{External: &jobs.ExternalSpec{Options: map[string]string{"regoin": "eu"}}}}, jobs.KindUsage, `has no option "regoin"`},
		"a level of no kind": {`,"level":"castle"`, jobs.EnvSpec{}, jobs.KindInfra, `the level "castle" is none of`},
		"a limit of no kind": {`,"limits":["fun"]`, jobs.EnvSpec{}, jobs.KindInfra, `the limit "fun" is none of`},
		"a negative life":    {`,"max_lifetime_seconds":-1`, jobs.EnvSpec{}, jobs.KindInfra, "the longest life is negative"},
		"a negative quota":   {`,"quotas":[{"name":"x","used":-1}]`, jobs.EnvSpec{}, jobs.KindInfra, "a quota is"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantError(t, checked(t, c.can).Settle(t.Context(), &c.s), c.kind, c.said)
		})
	}
}

func TestSettleWithoutPersistence(t *testing.T) {
	s := &jobs.EnvSpec{Persistent: true}
	if err := checked(t, `,"level":"none"`).Settle(t.Context(), s); err != nil || s.Persistent || s.External.Life != defaultLife || len(s.Notes) != 2 {
		t.Errorf("%+v %v", s, err)
	}
}

func TestCheck(t *testing.T) {
	b := checked(t, able)
	if b.Level() != jobs.LevelNone {
		t.Error("a program that nobody has asked contains")
	}
	if got := b.Check(t.Context()); got.Health != jobs.Healthy || got.Version != "1" || b.Level() != jobs.LevelVM {
		t.Errorf("%+v", got)
	}
	sick := &Backend{Word: "fake", On: run.Local{}, Builtin: program(t, `echo '{"error":{"kind":"auth","message":"no key"}}'`)}
	if got := sick.Check(t.Context()); got.Health != jobs.Unhealthy || got.Reason != "no key" || !strings.Contains(got.Hint, "FAKE_") {
		t.Errorf("%+v", got)
	}
	none := &Backend{Word: "nowhere", On: run.Local{}}
	if got := none.Check(t.Context()); got.Health != jobs.Undetected || got.Hint == "" {
		t.Errorf("%+v", got)
	}
}

// What does not have the owner's tags is no one's business here.
func TestList(t *testing.T) {
	owner := strings.Repeat("a", 32)
	mine := `{"ref":"sb-1","name":"n","tags":{"berth":"1","berth-owner":"` + owner + `","berth-env":"e1","berth-name":"demo","berth-job":"j1"},"running":true}`
	body := func(found string) string {
		return `cp "$2" "$FAKE_RECORD/$1"; case $1 in list) printf '%s\n' '{"ok":{"found":[` + found + `]}}';; *) echo '{"ok":{}}';; esac`
	}
	record := t.TempDir()
	t.Setenv("FAKE_RECORD", record)
	b := &Backend{Word: "fake", On: run.Local{}, Owner: func() (string, error) { return owner, nil }}
	b.Options = func() map[string]string { return map[string]string{"region": "eu"} }
	b.Builtin = program(t, body(mine+`,{"ref":"sb-2","name":"n","tags":{"berth":"1","berth-owner":"b"}},{"ref":"sb-3","name":"n"}`+
		`,{"ref":"sb-4","name":"n","tags":{"berth-owner":"`+owner+`","berth-env":"e1"}}`+ // of no version
		`,{"ref":"sb-5","name":"n","tags":{"berth":"1","berth-owner":"`+strings.ToUpper(owner)+`","berth-env":"e1"}}`+
		`,{"ref":"sb-6","name":"n","tags":{"berth":"1","berth-owner":"`+owner+`0","berth-env":"e1"}}`+
		`,{"ref":"sb-7","name":"n","tags":{"berth":"1","berth-owner":"`+owner+`"}}`)) // of no environment
	found, err := b.List(t.Context(), run.Local{})
	if err != nil || len(found) != 1 || found[0].Ref != "sb-1" || found[0].ID != "e1" || found[0].Name != "demo" || found[0].Job != "j1" || !found[0].Running || found[0].Backend != "fake" || found[0].What != "sandbox" {
		t.Fatalf("%+v %v", found, err)
	}
	if err := b.Reap(t.Context(), run.Local{}, found[0]); err != nil {
		t.Fatal(err)
	}
	x := &box{record: record}
	if r := x.asked(t, protocol.VerbDestroy); r == nil || r.Ref != "sb-1" || r.Tags["berth-owner"] != owner || r.Tags["berth-env"] != "e1" {
		t.Errorf("%+v", r)
	}
	b.Check(t.Context())
	for _, verb := range []string{protocol.VerbList, protocol.VerbDestroy, protocol.VerbCheck} { // where they stand is an option
		if r := x.asked(t, verb); r == nil || r.Options["region"] != "eu" {
			t.Errorf("%s: %+v", verb, r)
		}
	}
	b.Builtin = program(t, body(`{"ref":"a\nb","tags":{}}`))
	_, err = b.List(t.Context(), run.Local{})
	wantError(t, err, jobs.KindInfra, "its ref holds control characters")
	b.Builtin = nil
	_, err = b.List(t.Context(), run.Local{})
	wantError(t, err, jobs.KindConfig, "there is no program berth-backend-fake")
}

// A check that failed, or was interrupted, is asked again: a key may have been
// set. One that went well is not.
func TestCheckKeepsOnlyWhatWentWell(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	times := key + "s"
	b := &Backend{Word: "fake", On: run.Local{}, Builtin: program(t, `echo x >>`+times+`
if [ -e `+key+` ]; then echo '{"ok":{"version":"1","level":"vm"}}'; else echo '{"error":{"kind":"auth","message":"no key"}}'; fi`)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Checked(ctx); err == nil {
		t.Error("an interrupted check went well")
	}
	_, err := b.Checked(t.Context())
	wantError(t, err, jobs.KindAuth, "no key")
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 { // with -race this finds what is read without the lock
		all.Go(func() {
			if c, err := b.Checked(t.Context()); err != nil || c.Level != "vm" {
				t.Errorf("%+v %v", c, err)
			}
			if b.Level() != jobs.LevelVM {
				t.Error("its level is not known")
			}
		})
	}
	all.Wait()
	if err := os.Remove(times); err != nil {
		t.Fatal(err)
	}
	if got := b.Check(t.Context()); got.Health != jobs.Healthy {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(times); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is known to be good was asked again: %v", err)
	}
}
