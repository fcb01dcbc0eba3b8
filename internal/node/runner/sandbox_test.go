package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// inBox makes a job one of a backend that is a program, whose one sandbox is a
// directory. The program writes down what it is asked, and gives the answer open
// to that; "" is that it has made the sandbox.
func inBox(t *testing.T, open, command string, change func(*store.New)) (j *job, asked func() string, home string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "berth-backend-box")
	j = newJob(t, command, func(n *store.New) {
		n.Spec.Backend, n.Spec.External = "box", &jobs.ExternalSpec{Program: []string{program}, Owner: "me", Life: time.Hour}
		if change != nil {
			change(n)
		}
	})
	home = filepath.Join(j.tmp, "box")
	if open == "" {
		open = fmt.Sprintf(`{"ok":{"ref":"box-1","state":"made","guest":%q,"arch":%q,"home":%q,"ends":"2126-11-22T12:00:00Z"}}`, self, runtime.GOARCH, home)
	}
	text := "#!/bin/sh\n[ \"$BOX_KEY$OTHER\" = canary ] || exit 99\necho $1 >>" + dir + "/asked\ncase $1 in\nopen) mkdir " + home + "; echo '" + open + "';;\n" +
		"stream) cd " + home + "; echo '{\"ok\":{}}'; exec env -i PATH=\"$PATH\" HOME=" + home + " " + self + " guest;;\n" +
		"destroy) rm -rf " + home + "; echo '{\"ok\":{}}';;\n*) exit 98;;\nesac\n"
	if err := writeProgram(program, text); err != nil {
		t.Fatal(err)
	}
	j.env = append(j.env, "BOX_KEY=canary", "OTHER=never")
	return j, func() string {
		b, err := os.ReadFile(filepath.Join(dir, "asked"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(b)), " ")
	}, home
}

// A job in a sandbox works on a copy there, what it changed comes back, and the
// sandbox ends with the attempt.
func TestSandbox(t *testing.T) {
	dir := repo(t)
	j, asked, home := inBox(t, "", `pwd; rm a.txt; echo b >b.txt; echo "key: $BOX_KEY"; echo said >&2`, onRepo(t, dir, func(n *store.New) {
		n.Spec.Done = []jobs.Command{{Shell: `test ! -e a.txt && test "$(cat b.txt)" = b && echo checked`}}
	}))
	code, rec := j.run()
	if code != 0 || rec.Result == nil || !rec.Result.Taken || rec.Result.Files != 2 {
		t.Fatalf("exit %d, %+v\n%s%s", code, rec, j.read(store.FileRuntime), j.read(store.FileStderr))
	}
	if got := git(t, dir, "diff", "--name-status", "main", rec.Result.Branch); got != "D\ta.txt\nA\tb.txt" {
		t.Error(got)
	}
	if out := j.read(store.FileStdout); !strings.HasPrefix(out, filepath.Join(home, jobs.FarJobs)+"/") || !strings.HasSuffix(out, "/work\nkey: \n") {
		t.Errorf("%q", out)
	}
	if out := j.read(store.FileDoneStdout); out != "checked\n" {
		t.Errorf("%q", out)
	}
	if a := asked(); a != "open stream stream destroy" {
		t.Errorf("asked: %s", a)
	}
}

// However a job ends, its sandbox ends with it, but for one that has the only
// copy of its files: the record says where they are, and for how long.
func TestSandboxEnds(t *testing.T) {
	for _, c := range []struct {
		name  string
		end   func(j *job)
		code  int
		asked string
	}{
		{"cancelled", func(j *job) { j.cancel(); j.signal(syscall.SIGTERM) }, 130, "open stream destroy"},
		{"link cut", (*job).killGuest, 5, "open stream stream"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j, asked, home := inBox(t, "", "echo b >b.txt; echo ready; sleep 60", onRepo(t, repo(t), nil))
			j.start().says("ready")
			c.end(j)
			code, rec := j.wait()
			if code != c.code || asked() != c.asked {
				t.Fatalf("exit %d, asked: %s, %+v\n%s", code, asked(), rec, j.read(store.FileRuntime))
			}
			notes := strings.Join(rec.Notes, "; ")
			if kept := strings.Contains(notes, "untrusted as the task left them, on the sandbox of the backend box box-1") && strings.Contains(notes, "berth env gc"); kept != (c.code == 5) {
				t.Errorf("notes: %s", notes)
			}
			if l := left(t, home); c.code == 5 && len(l) == 1 {
				if _, err := os.Lstat(filepath.Join(l[0], ".git")); err == nil {
					t.Error("the task's .git is in what is kept")
				}
			} else if c.code == 5 {
				t.Errorf("left %q", l)
			}
		})
	}
}

// A sandbox that is not available fails the attempt in the words of the program. One
// that may have been made all the same is taken back.
func TestNoSandbox(t *testing.T) {
	for _, c := range []struct {
		kind, asked string
	}{
		{"quota", "open"},
		{"unclear", "open destroy"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			j, asked, _ := inBox(t, `{"error":{"kind":"`+c.kind+`","message":"the box is shut","hint":"open it"}}`, "echo never", nil)
			code, rec := j.run()
			if code == 0 || asked() != c.asked || !strings.Contains(rec.Reason, "the box is shut") || rec.Hint != "open it" {
				t.Errorf("exit %d, asked: %s, %+v\n%s", code, asked(), rec, j.read(store.FileRuntime))
			}
		})
	}
}

// A guest that ends without a word is told with the name of the service.
func TestNoGuestInSandbox(t *testing.T) {
	var program string
	j, asked, _ := inBox(t, "", "echo never", func(n *store.New) { program = n.Spec.External.Program[0] })
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeProgram(program, strings.Replace(string(text), "exec env -i", "exit 0; exec env -i", 1)); err != nil {
		t.Fatal(err)
	}
	code, rec := j.run()
	if code != 5 || asked() != "open stream destroy" || !strings.HasPrefix(rec.Reason, "the guest did not start in the sandbox of the backend box: ") {
		t.Errorf("exit %d, asked: %s, %+v\n%s", code, asked(), rec, j.read(store.FileRuntime))
	}
}
