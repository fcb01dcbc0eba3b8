package runner

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/jobs"
	"berth/jobs/store"
)

// onHost makes a job one of backend ssh, whose host is a directory of this
// machine: the ssh program has a shell run the line with that as its home.
func onHost(t *testing.T, command string, change func(*store.New)) (j *job, home string) {
	t.Helper()
	j = newJob(t, command, func(n *store.New) {
		n.Spec.Backend, n.Spec.SSH = jobs.BackendSSH, &jobs.SSHSpec{Host: "there"}
		if change != nil {
			change(n)
		}
	})
	home = filepath.Join(j.tmp, "far")
	bin := filepath.Join(t.TempDir(), "bin")
	for _, d := range []string{home, bin} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	program := "#!/bin/sh\n[ -z \"$SECRET$T\" ] || exit 99\nfor a; do :; done\ncase \" $* \" in *' -oControlMaster=no '*) ;; *) exit 98 ;; esac\nif [ -e " + home + ".gone ]; then echo 'no route' >&2; exit 255; fi\ncd " + home + " && HOME=" + home + " exec /bin/sh -c \"$a\"\n"
	if err := writeProgram(filepath.Join(bin, "ssh"), program); err != nil {
		t.Fatal(err)
	}
	j.env = append(j.env, "PATH="+bin+":"+os.Getenv("PATH"), "SECRET=canary", "XDG_RUNTIME_DIR=")
	return j, home
}

// left is what stands on the host of jobs.
func left(t *testing.T, home string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(home, jobs.FarJobs, "*", "work"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A job on another host works on a copy there, and what it changed comes back.
func TestFar(t *testing.T) {
	dir := repo(t)
	j, home := onHost(t, `pwd; rm a.txt; echo b >b.txt; mkdir -m 500 shut; echo "$T"; echo said >&2`, onRepo(t, dir, func(n *store.New) {
		n.Spec.Env = []string{"T=value"}
		n.Spec.Done = []jobs.Command{{Shell: `test ! -e a.txt && test "$(cat b.txt)" = b && echo checked && touch not-kept`}}
		n.Spec.Artifacts = []string{"b.txt"}
	}))
	code, rec := j.run()
	if code != 0 || rec.Result == nil || !rec.Result.Taken || rec.Result.Files != 1 {
		t.Fatalf("exit %d, %+v\n%s%s", code, rec, j.read(store.FileRuntime), j.read(store.FileStderr))
	}
	if got := git(t, dir, "diff", "--name-status", "main", rec.Result.Branch); got != "D\ta.txt" {
		t.Error(got)
	}
	if out := j.read(store.FileStdout); out != filepath.Join(home, jobs.FarJobs, rec.Attempt, "work")+"\nvalue\n" && !strings.HasSuffix(out, "/work\nvalue\n") {
		t.Errorf("%q", out)
	}
	if out := j.read(store.FileDoneStdout); out != "checked\n" {
		t.Errorf("%q", out)
	}
	if l := left(t, home); len(l) != 0 {
		t.Errorf("left %q", l)
	}
	if _, err := os.Stat(filepath.Join(j.dir, "artifacts", "b.txt")); err != nil {
		t.Error(err)
	}
}

// Without a workspace nothing travels.
func TestFarWithout(t *testing.T) {
	j, home := onHost(t, "pwd; exit 3", nil)
	code, rec := j.run()
	if code != 1 || rec.Exit.Code != 3 || j.read(store.FileStdout) != home+"\n" {
		t.Errorf("exit %d, %+v, %q\n%s", code, rec, j.read(store.FileStdout), j.read(store.FileRuntime))
	}
}

// A cancelled job's changes come back; those of one whose link broke stay
// there, without a .git of the task's, and the record says where. When the host
// cannot be reached any more, the record says that the .git is there.
func TestFarEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(j *job)
		code int
	}{
		{"cancelled", func(j *job) { j.cancel(); j.signal(syscall.SIGTERM) }, 130},
		{"link cut", (*job).killGuest, 5},
		{"host gone", (*job).killGuest, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := repo(t)
			j, home := onHost(t, "echo b >b.txt; mkdir -p sub/.git; echo ready; sleep 60", onRepo(t, dir, nil))
			j.start().says("ready")
			if c.name == "host gone" {
				if err := os.WriteFile(home+".gone", nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c.end(j)
			code, rec := j.wait()
			if code != c.code {
				t.Fatalf("exit %d, %+v\n%s", code, rec, j.read(store.FileRuntime))
			}
			if c.code == 130 {
				if rec.Result == nil || rec.Result.Files != 1 || len(left(t, home)) != 0 {
					t.Errorf("%+v, %q", rec, left(t, home))
				}
				return
			}
			l := left(t, home)
			if rec.Result != nil || len(l) != 1 {
				t.Fatalf("%+v, %q", rec, l)
			}
			notes, gone := strings.Join(rec.Notes, "; "), c.name == "host gone"
			if !strings.Contains(notes, "untrusted as the task left them, on there in ~/"+jobs.FarJobs) || strings.Contains(notes, "the task's .git may still be there") != gone {
				t.Errorf("notes: %s", notes)
			}
			for _, at := range []string{".git", "sub/.git"} {
				if _, err := os.Lstat(filepath.Join(l[0], at)); (err == nil) != gone {
					t.Errorf("%s: %v", at, err)
				}
			}
			if b, err := os.ReadFile(filepath.Join(l[0], "b.txt")); err != nil || string(b) != "b\n" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
}
