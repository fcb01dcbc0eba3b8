//go:build linux

package session_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/jobs"
)

func TestExits(t *testing.T) {
	p := open(t, session.Options{})
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	in := func(req session.StartRequest, dir string) session.StartRequest {
		req.Dir = dir
		return req
	}
	with := func(req session.StartRequest, env ...string) session.StartRequest {
		req.Env = env
		return req
	}
	not := func(code int, text string) jobs.Exit { return jobs.Exit{Code: code, Error: text} }
	for name, c := range map[string]struct {
		req  session.StartRequest
		want jobs.Exit
	}{
		"0":                     {shell("exit 0"), jobs.Exit{Started: true}},
		"1":                     {shell("exit 1"), jobs.Exit{Started: true, Code: 1}},
		"255":                   {shell("exit 255"), jobs.Exit{Started: true, Code: 255}},
		"137 is not a signal":   {shell("exit 137"), jobs.Exit{Started: true, Code: 137}},
		"KILL":                  {shell("kill -9 $$"), jobs.Exit{Started: true, Code: 137, Signal: 9}},
		"TERM":                  {shell("kill $$"), jobs.Exit{Started: true, Code: 143, Signal: 15}},
		"SEGV":                  {shell("ulimit -c 0; kill -SEGV $$"), jobs.Exit{Started: true, Code: 139, Signal: 11}},
		"PIPE is not ignored":   {shell("kill -PIPE $$"), jobs.Exit{Started: true, Code: 141, Signal: 13}},
		"HUP is not ignored":    {shell("kill -HUP $$"), jobs.Exit{Started: true, Code: 129, Signal: 1}},
		"closes its output":     {shell("exec >&- 2>&-; exit 3"), jobs.Exit{Started: true, Code: 3}},
		"empty input":           {argv("cat"), jobs.Exit{Started: true}},
		"no such command":       {argv("berth-no-such"), not(127, "berth-no-such: command not found")},
		"no such file":          {argv("/no/such"), not(127, "/no/such: no such file or directory")},
		"not executable":        {argv(file("plain", "x", 0o644)), not(126, filepath.Join(dir, "plain")+": permission denied")},
		"a directory":           {argv(dir), not(126, dir+": permission denied")},
		"denied on PATH":        {with(argv("plain"), "PATH="+dir), not(126, "plain: permission denied")},
		"found on its own PATH": {with(argv("mine"), "PATH="+filepath.Dir(file("mine", "#!/bin/sh\nexit 9\n", 0o755))), jobs.Exit{Started: true, Code: 9}},
		"relative":              {in(argv("./mine"), dir), jobs.Exit{Started: true, Code: 9}},
		"no interpreter":        {argv(file("odd", "#!/no/such/sh\n", 0o755)), not(127, filepath.Join(dir, "odd")+": its interpreter or loader does not exist here")},
		"no format":             {argv(file("text", "exit 0\n", 0o755)), not(126, filepath.Join(dir, "text")+": not a program for this machine, or a script without #!")},
		"no such directory":     {in(shell("exit 0"), "/no/such/dir"), not(126, "working directory /no/such/dir: no such file or directory")},
		"directory is a file":   {in(shell("exit 0"), filepath.Join(dir, "plain")), not(126, "working directory "+filepath.Join(dir, "plain")+": not a directory")},
		"empty argv[0]":         {argv(""), not(127, "no program is named")},
		"NUL in an argument":    {argv("echo", "a\x00b"), not(126, "an argument holds a NUL byte")},
		"bad variable":          {with(shell("exit 0"), "A=1", "secret"), not(126, "variable 2 of the environment is not NAME=VALUE without NUL bytes")},
		"too long":              {argv("echo", strings.Repeat("x", 200<<10)), not(126, "echo: argument list too long")},
	} {
		t.Run(name, func(t *testing.T) {
			p := *p
			p.t = t
			res, _, _ := p.run(c.req)
			if res.Exit != c.want {
				t.Errorf("got %+v, want %+v", res.Exit, c.want)
			}
			if res.Exit.Started != (!res.Started.IsZero() && !res.Ended.Before(res.Started) && res.MaxRSS > 0) {
				t.Errorf("times and memory: %+v", res)
			}
		})
	}
	if _, err := p.s.Start(session.StartRequest{}, nil, nil); err == nil {
		t.Error("an empty request was taken")
	}
	if _, err := p.s.Start(shell(strings.Repeat("x", 20<<20)), nil, nil); err == nil {
		t.Error("an endless text was taken")
	}
	if res, out, _ := p.run(shell("echo still here")); !res.Exit.OK() || out != "still here\n" {
		t.Errorf("afterwards: %+v %q", res, out)
	}
}

func TestOutput(t *testing.T) {
	p := open(t, session.Options{})
	for name, c := range map[string]struct{ text, out, err string }{
		"no newline":  {"printf abc; printf def >&2", "abc", "def"},
		"binary":      {`printf '\000\001\377\376\n\r\033'`, "\x00\x01\xff\xfe\n\r\x1b", ""},
		"interleaved": {"for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done", "o1\no2\no3\no4\no5\n", "e1\ne2\ne3\ne4\ne5\n"},
		"magic":       {`printf '\000berth-guest\n'`, "\x00berth-guest\n", ""},
		"stdout only": {"exec 2>&-; echo x", "x\n", ""},
		"none":        {"exec >&- 2>&-", "", ""},
		"descriptors": {"ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3 ", ""}, // 3 is what ls reads
		"no tty":      {"tty; (: </dev/tty) 2>/dev/null || echo none", "not a tty\nnone\n", ""},
	} {
		if _, o, e := p.run(shell(c.text)); o != c.out || e != c.err {
			t.Errorf("%s: got %q and %q", name, o, e)
		}
	}
}

func TestEnvironment(t *testing.T) {
	p := open(t, session.Options{User: "alice"}, "APPTAINER_NAME=x.sif", "SINGULARITY_BIND=/x", "BERTH_HOME=/x", "BASH_ENV=/no/such",
		"KEPT=yes", "PWD=/wrong", "LANG=C", `PROMPT_COMMAND=PS1="Apptainer> "`)
	req := shell("env -0")
	req.Dir = "/"
	req.Env = []string{"LINES2=one\ntwo", "BYTES=\xff\xfe", "EMPTY=", "KEPT=changed", "BERTH_JOB=j", "EQ=a=b"}
	_, out, _ := p.run(req)
	got := map[string]string{}
	for e := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		k, v, _ := strings.Cut(e, "=")
		if _, twice := got[k]; twice {
			t.Errorf("%s is there twice", k)
		}
		got[k] = v
	}
	for k, v := range map[string]string{
		"LINES2": "one\ntwo", "BYTES": "\xff\xfe", "EMPTY": "", "KEPT": "changed", "BERTH_JOB": "j", "EQ": "a=b",
		"PWD": "/", "USER": "alice", "LOGNAME": "alice", "TMPDIR": "/tmp", "LANG": "C.UTF-8",
		"SHELL": p.s.Guest().Shell, "PATH": p.s.Guest().Path, "HOME": p.s.Guest().Home,
	} {
		if w, ok := got[k]; !ok || w != v {
			t.Errorf("%s is %q, want %q", k, w, v)
		}
	}
	for _, k := range []string{"APPTAINER_NAME", "SINGULARITY_BIND", "BERTH_HOME", "BASH_ENV", "PROMPT_COMMAND", roleVar, "BERTH_PROMPT_FILE"} {
		if v, ok := got[k]; ok {
			t.Errorf("%s=%s came through", k, v)
		}
	}
}

func TestHome(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		home     string
		fallback []string
		want     string
	}{
		"exists":        {dir, nil, dir},
		"is made":       {filepath.Join(dir, "a", "b", "alice"), nil, filepath.Join(dir, "a", "b", "alice")},
		"cannot":        {filepath.Join(file, "x"), []string{"/proc/x", filepath.Join(dir, "second")}, filepath.Join(dir, "second")},
		"the place's":   {"", []string{filepath.Join(dir, "third")}, os.Getenv("HOME")},
		"relative path": {"alice", []string{filepath.Join(dir, "fourth")}, filepath.Join(dir, "fourth")},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, session.Options{Home: c.home, HomeFallback: c.fallback})
			if got := p.s.Guest().Home; got != c.want {
				t.Fatalf("got %s, want %s", got, c.want)
			}
			if _, out, _ := p.run(shell(`echo "$HOME"; touch ~/.x && rm ~/.x; stat -c %a ~`)); !strings.HasPrefix(out, c.want+"\n") || (name == "is made" && !strings.HasSuffix(out, "\n700\n")) {
				t.Errorf("inside: %q", out)
			}
		})
	}
}

func TestPrompt(t *testing.T) {
	p := open(t, session.Options{})
	big := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16) // 1 MiB
	for name, prompt := range map[string][]byte{"small": []byte("do it"), "empty": {}, "odd": []byte("a\x00b\xff\xfe\r\n"), "big": big} {
		req := shell(`stat -c '%a %s' "$BERTH_PROMPT_FILE"; sha256sum <"$BERTH_PROMPT_FILE"; sha256sum`)
		req.Prompt = prompt
		res, out, _ := p.run(req)
		sum := fmt.Sprintf("%x  -\n", sha256.Sum256(prompt))
		if want := fmt.Sprintf("600 %d\n", len(prompt)) + sum + sum; !res.Exit.OK() || out != want {
			t.Errorf("%s: %+v %q", name, res.Exit, out)
		}
	}
	for _, text := range []string{"exit 4", "exec <&-; exit 4", "head -c 10 >/dev/null; exit 4"} {
		req := shell(text)
		req.Prompt = big
		if res, _, _ := p.run(req); res.Exit.Code != 4 {
			t.Errorf("%s: %+v", text, res.Exit)
		}
	}
	req := argv("berth-no-such")
	req.Prompt = big
	if res, _, _ := p.run(req); res.Exit.Code != 127 {
		t.Errorf("no such command: %+v", res.Exit)
	}
	// A task may remove what is not its own.
	req = shell(`rm -r "$(dirname "$BERTH_PROMPT_FILE")"`)
	req.Prompt = []byte("x")
	if res, _, errs := p.run(req); !res.Exit.OK() {
		t.Errorf("%+v %s", res.Exit, errs)
	}
	// The file is gone with the command.
	req = shell(`echo "$BERTH_PROMPT_FILE"`)
	req.Prompt = []byte("x")
	_, out, _ := p.run(req)
	eventually(t, "no prompt file", func() bool {
		_, err := os.Stat(strings.TrimSpace(out))
		return os.IsNotExist(err)
	})
}

func TestStdin(t *testing.T) {
	p := open(t, session.Options{})
	big := bytes.Repeat([]byte("0123456789abcde\n"), 1<<17) // 2 MiB
	req := shell("sha256sum; exit 5")
	req.Stdin = bytes.NewReader(big)
	if res, out, _ := p.run(req); res.Exit.Code != 5 || !strings.HasPrefix(out, fmt.Sprintf("%x", sha256.Sum256(big))) {
		t.Errorf("read: %+v %q", res, out)
	}
	req = shell("sleep .2; exit 6")
	req.Stdin = bytes.NewReader(big)
	if res, _, _ := p.run(req); res.Exit.Code != 6 {
		t.Errorf("not read: %+v", res)
	}
	req = shell("read line; echo $line; (sleep 300 & echo $!); exit 7") // keeps the input open
	r, w := io.Pipe()
	req.Stdin = r
	go func() { _, _ = io.WriteString(w, "first\n") }()
	res, out, _ := p.run(req)
	if res.Exit.Code != 7 || !strings.HasPrefix(out, "first\n") {
		t.Errorf("open: %+v %q", res, out)
	}
	_ = w.Close()
	if left, err := p.s.End(p.ctx, 0); left != 0 || err != nil {
		t.Errorf("end: %d %v", left, err)
	}
}

func TestSignals(t *testing.T) {
	p := open(t, session.Options{})
	var out buffer
	req := argv(os.Args[0])
	req.Env = []string{roleVar + "=" + roleTraps, "GORACE=atexit_sleep_ms=0"}
	proc := p.start(req, &out, nil)
	want := "ready\n"
	eventually(t, "ready", func() bool { return out.String() == want })
	for range 3 {
		if err := proc.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		want += "usr1\n"
		eventually(t, "usr1", func() bool { return out.String() == want })
	}
	if err := proc.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := proc.Terminate(hang); err != nil {
		t.Fatal(err)
	}
	if res, err := wait(t, proc); err != nil || res.Exit != (jobs.Exit{Started: true, Code: 3}) || out.String() != want+"term\n" {
		t.Errorf("%+v %v, %q", res, err, out.String())
	}
	for range 3 {
		if err := proc.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("after the end: %v", err)
		}
		if err := proc.Terminate(time.Second); err != nil {
			t.Errorf("after the end: %v", err)
		}
		if res, err := proc.Wait(); err != nil || res.Exit.Code != 3 {
			t.Errorf("again: %+v %v", res, err)
		}
	}
}

// A signal never overtakes the one that was sent before it.
func TestSignalOrder(t *testing.T) {
	p := open(t, session.Options{})
	for range 40 {
		var out buffer
		proc := p.start(shell("echo ready; exec sleep 300"), &out, nil)
		eventually(t, "ready", func() bool { return out.String() != "" })
		if err := proc.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if err := proc.Terminate(time.Minute); err != nil {
			t.Fatal(err)
		}
		if res, err := wait(t, proc); err != nil || res.Exit != (jobs.Exit{Started: true, Code: 143, Signal: 15}) {
			t.Fatalf("%+v %v", res, err)
		}
	}
}

// TestSignalEarly: a signal to a command that waits for its turn is delivered when it begins.
func TestSignalEarly(t *testing.T) {
	p := open(t, session.Options{})
	file := filepath.Join(t.TempDir(), "go")
	inSession := func(text string) *session.Process {
		req := shell(text)
		req.Session = "s"
		return p.start(req, nil, nil)
	}
	first := inSession("until test -e " + file + "; do sleep 0.02; done")
	second := inSession("sleep 60; exit 5")
	if err := second.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// What is said after the signal is taken behind it.
	if _, out, _ := p.run(shell("touch " + file + "; echo done")); out != "done\n" {
		t.Errorf("%q", out)
	}
	if res, err := wait(t, first); err != nil || !res.Exit.OK() {
		t.Errorf("%+v %v", res, err)
	}
	if res, err := wait(t, second); err != nil || res.Exit != (jobs.Exit{Started: true, Code: 143, Signal: 15}) {
		t.Errorf("%+v %v", res, err)
	}
}

func TestOOMScore(t *testing.T) {
	p := open(t, session.Options{})
	_, out, _ := p.run(shell("until [ $(cat /proc/self/oom_score_adj) -ge 500 ]; do sleep 0.02; done; cat /proc/self/oom_score_adj"))
	if n, err := strconv.Atoi(strings.TrimSpace(out)); err != nil || n < 500 {
		t.Errorf("got %q", out)
	}
}

func TestManyAtOnce(t *testing.T) {
	p := open(t, session.Options{})
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			var out, errs bytes.Buffer
			req := shell(fmt.Sprintf("head -c %d /dev/zero; cat >&2; exit %d", i*10000, i))
			req.Prompt = []byte(strings.Repeat("p", i*1000))
			proc, err := p.s.Start(req, &out, &errs)
			if err != nil {
				t.Error(err)
				return
			}
			res, err := proc.Wait()
			if err != nil || res.Exit != (jobs.Exit{Started: true, Code: i}) || out.Len() != i*10000 || errs.Len() != i*1000 {
				t.Errorf("%d: %+v %v, %d and %d bytes", i, res, err, out.Len(), errs.Len())
			}
		})
	}
	all.Wait()
}

// TestMerge has both streams in the order in which the command writes them, also
// when another process of it does.
func TestMerge(t *testing.T) {
	bash, sh := open(t, session.Options{}), openSh(t)
	var want strings.Builder
	for i := range 100 {
		fmt.Fprintf(&want, "o%d\ne%d\n", i, i)
	}
	for name, req := range map[string]session.StartRequest{"plain": {}, "session": {Session: "m"}, "fork": {Session: "m", Fork: true}} {
		for shell, p := range map[string]*place{"bash": bash, "sh": sh} {
			req.Merge = true
			req.Command.Shell = `i=0; while [ $i -lt 100 ]; do echo o$i; sh -c "echo e$i >&2"; i=$((i + 1)); done; trap 'echo end >&2' EXIT; exit 3`
			if res, out, errs := p.run(req); out != want.String()+"end\n" || errs != "" || res.Exit.Code != 3 {
				t.Errorf("%s, %s: %+v %q, apart %q", name, shell, res, out, errs)
			}
			req.Command.Shell = "echo out; echo err >&2"
			req.Merge = false
			if _, out, errs := p.run(req); out != "out\n" || errs != "err\n" {
				t.Errorf("%s, %s: %q and %q afterwards", name, shell, out, errs)
			}
		}
	}
}

// TestLongText evaluates a text that no argument could hold, in a shell of a
// session and in one of its own.
func TestLongText(t *testing.T) {
	bash, sh := open(t, session.Options{}), openSh(t)
	lines := strings.Repeat("it's \"quoted\" $5 \\ <&> ü\n", 3<<20/25)
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(lines)))
	for name, req := range map[string]session.StartRequest{"plain": {}, "session": {Session: "l"}, "fork": {Session: "l", Fork: true}} {
		for shell, p := range map[string]*place{"bash": bash, "sh": sh} {
			req.Command.Shell = "v=after\nsha256sum <<'EOF'\n" + lines + "EOF\necho $v; cat; exit 3"
			req.Env, req.Stdin, req.Dir = []string{"A=a"}, strings.NewReader("input"), "/"
			if res, out, errs := p.run(req); out != sum+"  -\nafter\ninput" || errs != "" || res.Exit.Code != 3 {
				t.Errorf("%s, %s: %+v %.200q %.200q", name, shell, res, out, errs)
			}
		}
	}
}
