package external

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"berth/backends/external/protocol"
	"berth/internal/sys/run"
	"berth/jobs"
)

// box is an environment on the backend fake, and where it is kept.
type box struct {
	b       *Backend
	s       *jobs.EnvSpec
	dir     string
	record  string // what the program was asked, one file for each verb
	scratch string
	on      jobs.Starter // nil is this machine
}

// starter starts the programs.
func (x *box) starter() jobs.Starter {
	if x.on == nil {
		return run.Local{}
	}
	return x.on
}

// newBox is one whose program answers "open" with answer, everything else with
// an empty object, and keeps each request.
func newBox(t *testing.T, answer string) *box {
	t.Helper()
	x := &box{b: &Backend{}, dir: t.TempDir(), record: t.TempDir(), scratch: t.TempDir()}
	path := program(t, `cp "$2" `+x.record+`/$1; case $1 in open) cat <<'END'
`+answer+`
END
;; *) echo '{"ok":{}}';; esac`)
	x.s = &jobs.EnvSpec{
		ID: "01a200da-47cb-737b-ab0a-b3b956ffd23e", Name: "demo", Persistent: true, User: "ada", Defaulted: []string{"cpus"}, Lifetime: 5 * time.Minute,
		Place: jobs.Place{
			Backend: "fake", Level: jobs.LevelFS, Resources: jobs.Resources{CPUs: 2, Memory: 5 * jobs.GiB / 2}, External: &jobs.ExternalSpec{Program: path, Owner: strings.Repeat("a", 32), Life: time.Hour, Options: map[string]string{"region": "eu"}},
		},
	}
	return x
}

func (x *box) open(t *testing.T) (*jobs.Opening, error) {
	t.Helper()
	guest := filepath.Join(x.dir, "guest")
	if err := os.WriteFile(guest, []byte("a guest"), 0o700); err != nil {
		t.Fatal(err)
	}
	return x.b.Open(t.Context(), x.s, jobs.OpenPlace{Dir: x.dir, Guest: guest, Scratch: x.scratch, On: x.starter(), Progress: func(string) {}})
}

// asked is the request of a verb; nil is that there was none.
func (x *box) asked(t *testing.T, verb string) *protocol.Request {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(x.record, verb))
	if os.IsNotExist(err) {
		return nil
	}
	var r protocol.Request
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

func ok(fields string) string {
	return `{"ok":{"ref":"sb-1","guest":"/opt/berth/guest","arch":"` + runtime.GOARCH + `",` + fields + `}}`
}

func TestOpen(t *testing.T) {
	x := newBox(t, ok(`"state":"made","dropped":["cpus"],"home":"/root","notes":["a\nnote"],"cost":{"per_hour":0.5,"currency":"USD"}`))
	o, err := x.open(t)
	if err != nil {
		t.Fatal(err)
	}
	r := x.asked(t, "open")
	if r.Name != "berth-01a200da47cb737bab0ab3b956ffd23e-demo" || r.Ref != "" || r.Backend != "fake" || r.Berth != 1 {
		t.Errorf("%+v", r)
	}
	if s := r.Spec; s.CPUs != 2 || s.MemoryMiB != 2560 || s.LifetimeSeconds != 3600 || s.IdleSeconds != 420 || !s.Persistent || s.Network.Mode != "open" || strings.Join(s.Soft, " ") != "cpus" {
		t.Errorf("%+v", s)
	}
	if g := r.Guest; g.Arch != runtime.GOARCH || g.SHA256 != "d20abaadbe8b30600c6488d7a63be8c82b4837d6692d8ae0fc1072aa2d885bae" {
		t.Errorf("%+v", g)
	}
	if r.Tags["berth"] != "1" || r.Tags["berth-owner"] != x.s.External.Owner || r.Tags["berth-env"] != x.s.ID || r.Tags["berth-name"] != "demo" || r.Tags["berth-user"] != "ada" || r.Options["region"] != "eu" {
		t.Errorf("%+v", r)
	}
	if o.Home != "/root" || o.Rebuilt != "" || strings.Join(o.Notes, "|") != "a note|the limit cpus is not held by the backend fake" || o.OwnPIDNamespace {
		t.Errorf("%+v", o)
	}
	m, err := Load(x.dir)
	if err != nil || m.Ref != "sb-1" || m.Cost.PerHour != 0.5 {
		t.Errorf("%+v %v", m, err)
	}
	// What its argv names is the request of the stream.
	var stream protocol.Request
	b, err := os.ReadFile(o.Argv[len(o.Argv)-1])
	if err == nil {
		err = json.Unmarshal(b, &stream)
	}
	if err != nil || o.Argv[len(o.Argv)-2] != "stream" || stream.Ref != "sb-1" || strings.Join(stream.Argv, " ") != "/opt/berth/guest guest" || stream.Verb != "stream" || stream.Berth != 1 {
		t.Errorf("%q %+v %v", o.Argv, stream, err)
	}
	// The end keeps the files of one that is persistent, and no others.
	if err := o.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m, err := Load(x.dir); err != nil || m.Stopped.IsZero() {
		t.Errorf("its end is not recorded: %+v %v", m, err)
	}
	if r := x.asked(t, "stop"); r == nil || r.Ref != "sb-1" || r.Tags["berth-env"] != x.s.ID || x.asked(t, "destroy") != nil {
		t.Errorf("%+v, and destroy %+v", r, x.asked(t, "destroy"))
	}
	x.s.Persistent = false
	if err := o.End(t.Context()); err != nil || x.asked(t, "destroy") == nil {
		t.Error(err, x.asked(t, "destroy"))
	}
}

// What may run is ended by whoever finds it without a keeper, and is known to run
// no more only once the program has said so.
func TestEndOfUnkept(t *testing.T) {
	x := newBox(t, ok(`"state":"made"`))
	x.s.Home = t.TempDir()
	x.dir = filepath.Join(x.s.Home, "envs", x.s.Name)
	if err := os.MkdirAll(x.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, err := x.open(t); err != nil || !x.b.Left(x.s) {
			t.Fatalf("opening %d: %v, left: %v", i, err, x.b.Left(x.s))
		}
		if err := x.b.End(t.Context(), x.s); err != nil || x.b.Left(x.s) {
			t.Errorf("end %d: %v, left: %v", i, err, x.b.Left(x.s))
		}
	}
	if _, err := x.open(t); err != nil {
		t.Fatal(err)
	}
	good := x.s.External.Program
	x.s.External.Program = program(t, `echo '{"error":{"kind":"unreachable","message":"off"}}'`)
	wantError(t, x.b.End(t.Context(), x.s), jobs.KindInfra, "stop the sandbox of the environment demo: the backend fake: off")
	if !x.b.Left(x.s) {
		t.Error("it is taken to have ended")
	}
	// A record that cannot be read is no reason to let it run.
	x.s.External.Program = good
	if err := os.WriteFile(filepath.Join(x.dir, fileMade), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(x.record, "stop")); err != nil {
		t.Fatal(err)
	}
	if err := x.b.End(t.Context(), x.s); err != nil || x.asked(t, "stop") == nil || !x.b.Left(x.s) {
		t.Error(err)
	}
}

func TestOpenTellsOfLostFiles(t *testing.T) {
	x := newBox(t, ok(`"state":"made"`))
	for i, want := range []string{"", "its sandbox was gone from the service; its files are gone"} {
		if o, err := x.open(t); err != nil || o.Rebuilt != want {
			t.Errorf("opening %d: %+v %v", i, o, err)
		}
	}
	x = newBox(t, ok(`"state":"rebuilt","why":"it was evicted"`))
	if o, err := x.open(t); err != nil || o.Rebuilt != "its sandbox was made again, and its files are gone: it was evicted" {
		t.Errorf("%+v %v", o, err)
	}
	x = newBox(t, ok(`"state":"found","ends":"`+time.Now().Add(10*time.Minute).UTC().Format(time.RFC3339)+`"`))
	if o, err := x.open(t); err != nil || o.Rebuilt != "" || len(o.Notes) != 1 || !strings.HasPrefix(o.Notes[0], "the service ends it at ") {
		t.Errorf("%+v %v", o, err)
	}
}

func TestOpenIsNotLiedTo(t *testing.T) {
	arch := runtime.GOARCH
	for name, c := range map[string]struct {
		answer string
		kind   jobs.Kind
		said   string
	}{
		"no ref":           {`{"ok":{"guest":"/g","arch":"` + arch + `","state":"made"}}`, jobs.KindInfra, "it gives no ref"},
		"a ref with codes": {`{"ok":{"ref":"a\u001b[2Jb","guest":"/g","arch":"` + arch + `","state":"made"}}`, jobs.KindInfra, "its ref holds control characters"},
		"a ref as a flag":  {`{"ok":{"ref":"--all","guest":"/g","arch":"` + arch + `","state":"made"}}`, jobs.KindInfra, "its ref begins with a dash"},
		"a long ref":       {`{"ok":{"ref":"` + strings.Repeat("x", 300) + `","guest":"/g","arch":"` + arch + `","state":"made"}}`, jobs.KindInfra, "its ref has more than 256 bytes"},
		"no guest":         {`{"ok":{"ref":"r","arch":"` + arch + `","state":"made"}}`, jobs.KindInfra, "it gives no guest"},
		"a relative guest": {`{"ok":{"ref":"r","guest":"g","arch":"` + arch + `","state":"made"}}`, jobs.KindInfra, "its guest is no absolute path"},
		"another state":    {ok(`"state":"great"`), jobs.KindInfra, `the state "great" is none of made, found`},
		"another level":    {ok(`"state":"made","level":"fort"`), jobs.KindInfra, `the level "fort" is none of`},
		"a lower level":    {ok(`"state":"made","level":"none"`), jobs.KindConfig, "has made a sandbox of level none, and had promised fs"},
		"another arch":     {`{"ok":{"ref":"r","guest":"/g","arch":"vax","state":"made"}}`, jobs.KindConfig, "have vax processors"},
		"a hard limit":     {ok(`"state":"made","dropped":["memory"]`), jobs.KindConfig, "does not hold the limit memory, which was asked for"},
		"a negative cost":  {ok(`"state":"made","cost":{"per_hour":-1,"currency":"USD"}`), jobs.KindInfra, "the cost is -1"},
		"a bad time":       {ok(`"state":"made","ends":"tomorrow"`), jobs.KindInfra, "cannot be understood"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newBox(t, c.answer)
			_, err := x.open(t)
			wantError(t, err, c.kind, c.said)
			if m, err := Load(x.dir); m != nil || err != nil {
				t.Errorf("it is recorded: %+v %v", m, err)
			}
			// What was just made, and can be named, is not left behind.
			undone := x.asked(t, "destroy") != nil
			if want := strings.Contains(c.answer, `"made"`) && !strings.Contains(c.said, "ref"); undone != want && !strings.Contains(c.said, "understood") {
				t.Errorf("destroyed: %v, want %v", undone, want)
			}
		})
	}
}

func TestReadAnswer(t *testing.T) {
	for text, want := range map[string]string{
		"{\"progress\":\"x\"}\n\n{\"ok\":{}}\n\x00guest": "",
		"":                    "EOF",
		"motd\n{\"ok\":{}}\n": `it wrote a line that is none of the protocol's: "motd"`,
		"{\"ok\":{":           `its last line is cut off: "{\"ok\":{"`,
		"{\"error\":{\"kind\":\"gone\",\"message\":\"over\"}}": "over",
		strings.Repeat("x", protocol.MaxLine+1):                "it wrote a line of more than 1048576 bytes",
	} {
		r := strings.NewReader(text)
		err := readAnswer(r)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%.40q: %.100q, want %q", text, got, want)
		}
		if want == "" && r.Len() != len("\x00guest") {
			t.Errorf("%d bytes of the guest's are left", r.Len())
		}
	}
}
