package walls

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each promise of the page for administrators has a test, which is there: `TestName` in a
// directory, or a script of the command line.
func TestPromises(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(top, "docs/admins.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "\n| promise | held by |\n")
	table, _, more := strings.Cut(table, "\n\n")
	if !ok || !more {
		t.Fatal("docs/admins.md has no table of promises")
	}
	named := regexp.MustCompile("`([a-z/]+) (Test\\w+)(/\\w+)?`")
	rows := 0
	for _, row := range strings.Split(table, "\n")[1:] {
		rows++
		tests := named.FindAllStringSubmatch(row, -1)
		if len(tests) == 0 {
			t.Errorf("no test holds: %s", row)
		}
		for _, m := range tests {
			if m[2] == "TestScripts" {
				if _, err := os.Stat(filepath.Join(top, m[1], "testdata/script", m[3]+".txtar")); err != nil {
					t.Errorf("%s: %v", m[0], err)
				}
				continue
			}
			found, err := hasTest(filepath.Join(top, m[1]), m[2])
			if err != nil || !found {
				t.Errorf("%s is not there: %v", m[0], err)
			}
		}
	}
	if rows < 10 {
		t.Errorf("%d promises are too few", rows)
	}
}

// hasTest looks in the tests of one package.
func hasTest(dir, name string) (bool, error) {
	files, err := fs.Glob(os.DirFS(dir), "*_test.go")
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			return false, err
		}
		if strings.Contains(string(b), "\nfunc "+name+"(t *testing.T)") {
			return true, nil
		}
	}
	return false, err
}
