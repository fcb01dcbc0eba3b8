package cli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/internal/node/nodebin"
	"berth/test/browser"
	"berth/test/fakes/models"
	"berth/test/fakes/siftest"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestScripts(t *testing.T) {
	// Of several words: scripts look for the key in directories which have this program.
	vendor := sync.OnceValue(func() *models.Server {
		return models.Start(t, strings.Join([]string{"sk", "secret", "0123456789"}, "-"), nil)
	})
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), Setup: setup, UpdateScripts: *update, RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": codeCmd, "id": idCmd, "await": awaitCmd, "plain": plainCmd, "transcript": transcriptCmd, "spawn": spawnCmd, "sig": sigCmd, "reap": reapCmd, "norecords": noRecordsCmd,
			"guide": guideCmd, "browse": browseCmd,
			// models FILE...: the address of a model's API replaces MODELS in configurations, and ca.pem is its authority.
			"models": func(ts *testscript.TestScript, _ bool, files []string) {
				s := vendor()
				ts.Check(os.WriteFile(ts.MkAbs("ca.pem"), s.Authority(), 0o600))
				for _, f := range files {
					text := strings.NewReplacer("MODELS", "https://"+s.Addr(), "CA", ts.MkAbs("ca.pem")).Replace(ts.ReadFile(f))
					ts.Check(os.WriteFile(ts.MkAbs(f), []byte(text), 0o600))
				}
			},
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "container":
				return containers() == nil, nil
			case "browser":
				return browser.Installed(), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}

// browseCmd is "browse PAGE [FILE]": the page is fit to be seen in a browser, and has the lines of the file as text.
func browseCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: browse PAGE [FILE]")
	}
	page := browser.Page{Name: args[0], HTML: ts.ReadFile(args[0])}
	if len(args) > 1 {
		page.Text = strings.Split(strings.TrimSpace(ts.ReadFile(args[1])), "\n")
	}
	dir := filepath.Join(ts.Getenv("WORK"), "browser-"+args[0])
	ts.Check(os.Mkdir(dir, 0o700))
	faults, err := browser.Faults(dir, page)
	ts.Check(err)
	if len(faults) > 0 {
		ts.Fatalf("%s", strings.Join(faults, "\n"))
	}
}

// containers tells why the fake apptainer cannot work here, or nil.
var containers = sync.OnceValue(func() error {
	cmd := exec.Command("unshare", "-Urmpf", "--mount-proc", "true")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("user namespaces are off here: %w: %s", err, out)
	}
	return nil
})

// setup makes the place of a script: a state directory with the program for
// the nodes, an image, a user with a git identity.
func setup(env *testscript.Env) error {
	home, state := filepath.Join(env.WorkDir, "home"), filepath.Join(env.WorkDir, "state")
	for _, dir := range []string{home, filepath.Join(home, clusterDir), filepath.Join(state, "bin"), filepath.Join(env.WorkDir, "config", "berth", "profiles"), filepath.Join(env.WorkDir, ".bare")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	program, err := exec.LookPath("berth")
	if err != nil {
		return err
	}
	// What nodebin would do at the first submission; 20 MB with each script
	// would cost more than the scripts.
	node, ok := nodebin.For(runtime.GOOS, runtime.GOARCH)
	if !ok {
		return errors.New("there is no program for the nodes")
	}
	env.Setenv("BERTH_NODE", node.Name)
	if err := os.Link(program, filepath.Join(state, "bin", node.Name)); err != nil {
		return err
	}
	for _, name := range []string{"berth", "docker"} { // a docker of the machine's own may have a daemon
		if err := os.Link(program, filepath.Join(env.WorkDir, ".bare", name)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n"), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(env.WorkDir, "py.sif"), sif(), 0o600); err != nil {
		return err
	}
	host, err := registryHost()
	if err != nil {
		return err
	}
	sample, err := filepath.Abs("../../examples/backends")
	if err != nil {
		return err
	}
	env.Setenv("SAMPLE", sample)
	env.Setenv("EXAMPLES", filepath.Dir(sample))
	env.Setenv("REGISTRY", host)
	env.Setenv("HOME", home)
	env.Setenv("BERTH_HOME", state)
	env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
	env.Setenv("SHELL", "/bin/bash")
	// The sockets of keepers; a systemd of the machine's own is not asked there.
	sockets := filepath.Join(env.WorkDir, ".run")
	if err := os.Mkdir(sockets, 0o700); err != nil {
		return err
	}
	env.Setenv("XDG_RUNTIME_DIR", sockets)
	env.Setenv("BARE", filepath.Join(env.WorkDir, ".bare")+":/usr/bin:/bin") // no Slurm, no apptainer
	env.Values[spawnedKey{}] = map[string]*exec.Cmd{}
	env.Defer(func() { leftovers(env.T(), env.WorkDir) })
	return nil
}

// sif is an image with an empty root file system, and with what follows it.
func sif(rest ...byte) []byte {
	return siftest.New(uuid.UUID([]byte("0123456789abcdef")), append(slices.Clone(emptySquashfs()), rest...))
}

var emptySquashfs = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "berth-squashfs-*")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "file")
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		panic(err)
	}
	if out, err := exec.Command("mksquashfs", filepath.Join(dir, "empty"), file, "-quiet", "-no-progress").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("mksquashfs (Debian: squashfs-tools): %v: %s", err, out))
	}
	b, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	return b
})

// patience is how long a test waits for something before it fails: a machine
// that does much else is no failure.
const patience = 3 * time.Minute

// leftovers fails a script that leaves a process, a scratch directory, a data
// race or a panic behind, or that used a fake in a way the real program would
// not take.
func leftovers(t testscript.T, work string) {
	var bad []string
	deadline := time.Now().Add(patience)
	for {
		procs := processesOf(work)
		if len(procs) == 0 {
			break
		}
		if time.Now().After(deadline) {
			for pid, what := range procs {
				bad = append(bad, fmt.Sprintf("process %d is left: %s", pid, what))
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	left, _ := filepath.Glob(filepath.Join(work, ".tmp", "berth-*"))
	left = slices.DeleteFunc(left, func(p string) bool { return strings.HasSuffix(p, "-images") }) // the machine's cache of images stays
	if len(left) > 0 {
		bad = append(bad, fmt.Sprintf("left in the directory for temporary files: %q", left))
	}
	if left, _ := filepath.Glob(filepath.Join(work, ".run", "*", "*.sock")); len(left) > 0 {
		bad = append(bad, fmt.Sprintf("sockets are left: %q", left))
	}
	if b, err := os.ReadFile(filepath.Join(work, "home", clusterDir, "unexpected")); err == nil {
		bad = append(bad, "the fakes were misused: "+string(b))
	}
	_ = filepath.WalkDir(filepath.Join(work, "state"), func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".log") {
			if b, err := os.ReadFile(path); err == nil && (strings.Contains(string(b), "DATA RACE") || strings.Contains(string(b), "goroutine ")) {
				bad = append(bad, path+":\n"+string(b))
			}
		}
		return nil
	})
	if len(bad) > 0 {
		t.Fatal(strings.Join(bad, "\n"))
	}
}

// processesOf lists the processes that carry a script's directory in their
// environment or command line. All of them were started by the script.
func processesOf(work string) map[int]string {
	out := map[int]string{}
	files, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range files {
		var pid int
		if _, err := fmt.Sscan(filepath.Base(dir), &pid); err != nil || pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if len(line)+len(environ) == 0 {
			environ = executing(dir)
		}
		if strings.Contains(string(line), work+"/") || strings.Contains(string(environ), work+"/") {
			out[pid] = strings.ReplaceAll(string(line), "\x00", " ")
		}
	}
	return out
}

// executing is what tells whose a process is that shows no command line and no
// environment: it may be in the middle of an execve(2), for as long as the machine
// has no time for it, with its first thread gone or its memory not yet filled.
func executing(dir string) (tells []byte) {
	tasks, _ := filepath.Glob(filepath.Join(dir, "task", "[0-9]*"))
	for _, task := range tasks {
		environ, _ := os.ReadFile(filepath.Join(task, "environ"))
		program, _ := os.Readlink(filepath.Join(task, "exe"))
		where, _ := os.Readlink(filepath.Join(task, "cwd"))
		tells = append(append(tells, environ...), program+"\x00"+where+"/\x00"...)
	}
	return tells
}

// plainText replaces what differs from run to run.
func plainText(ts *testscript.TestScript, s string) string {
	for _, v := range []string{"ID", "ID2", "ID3"} {
		if id := ts.Getenv(v); id != "" {
			s = regexp.MustCompile(`(^|[^0-9a-f/-])`+id+`\b`).ReplaceAllString(s, "${1}"+v)
		}
	}
	host, _ := os.Hostname()
	name := "root"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	for _, r := range []struct{ pattern, by string }{
		{`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`, "UUID"},
		{`jobs/[0-9a-f]{2}/UUID`, "jobs/XX/UUID"},
		{`(berth-[a-z0-9-]+-)[0-9a-f]{12}\b`, "${1}RANDOM"},
		{`\b(berth/[a-z0-9-]+/)[0-9a-f]{8}\b`, "${1}SHORT"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "TIME"},
		{`("max_rss_bytes": )\d+`, "${1}0"},
		{`("duration_ms": ?)[0-9.]+`, "${1}0"},
		{`\b(process) \d+ on\b`, "${1} PID on"},
		{`(ends in\t)\S+`, "${1}TIME"},
		{`(-stdout)-\d+(\.out)\b`, "${1}-RANDOM${2}"},
		{`(peak memory\t)\S+`, "${1}SIZE"},
		{`(this machine has) \d+`, "${1} N"},
		{`\b(linux)/[a-z0-9]+\b`, "${1}/ARCH"},
		{`\b[0-9a-f]{40}\b`, "COMMIT"}, {`\bcommit [0-9a-f]{12}\b`, "commit COMMIT"}, {`\b[0-9a-f]{8}\b`, "SHORT"},
		{`\b(go1\.\d+)[.0-9a-z-]*( X:\S+)?`, "goVERSION"},
		{regexp.QuoteMeta(ts.Getenv("WORK")), "WORK"},
		{`\b` + regexp.QuoteMeta(host) + `\b`, "HOST"},
		{`((?:USER|LOGNAME)=)` + regexp.QuoteMeta(name) + `\b`, "${1}USER"},
		{`all the rights of ` + regexp.QuoteMeta(name) + `\b`, "all the rights of USER"},
	} {
		s = regexp.MustCompile(r.pattern).ReplaceAllString(s, r.by)
	}
	return s
}
