package walls

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scripts/rename-module leaves a whole tree under the other path: the go command finds all
// that the programs and the example import. With BERTH_RENAME=build they are built, too.
func TestRenameModule(t *testing.T) {
	const path = "example.org/some.body/berth-fork"
	to := t.TempDir()
	in := func(dir, program string, args ...string) string {
		t.Helper()
		c := exec.Command(program, args...)
		c.Dir = filepath.Join(to, dir)
		c.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(to))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	list, err := exec.Command("git", "-C", top, "ls-files", "-z").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	files := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	for _, name := range files {
		from, copied := filepath.Join(top, name), filepath.Join(to, name)
		fi, err := os.Lstat(from)
		if os.IsNotExist(err) || err == nil && !fi.Mode().IsRegular() {
			continue // removed and not committed yet; a link
		}
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, data, fi.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	in("", "git", "init", "-q")
	in("", "git", "add", "-A")
	in("", "scripts/rename-module", path)

	set := token.NewFileSet()
	for _, name := range files {
		if !strings.HasSuffix(name, ".go") || strings.Contains(name, "/testdata/") {
			continue
		}
		f, err := parser.ParseFile(set, filepath.Join(to, name), nil, parser.ImportsOnly)
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if strings.HasPrefix(i.Path.Value, `"berth/`) {
				t.Errorf("%s imports %s", name, i.Path.Value)
			}
		}
	}
	for dir, program := range map[string]string{"": "./cmd/berth", "examples/goapi": "."} {
		deps := strings.Fields(in(dir, "go", "list", "-deps", "-test", program))
		found := false
		for _, d := range deps {
			found = found || d == path+"/engine"
			if d == "berth" || strings.HasPrefix(d, "berth/") {
				t.Errorf("%s: %s is still imported", program, d)
			}
		}
		if !found {
			t.Errorf("%s does not import %s/engine", program, path)
		}
		if os.Getenv("BERTH_RENAME") == "build" {
			in(dir, "go", "build", "-o", os.DevNull, program)
		}
	}
	if out := in("", "gofmt", "-l", "cmd", "engine", "internal"); out != "" {
		t.Errorf("not as gofmt has it: %s", out)
	}
}
