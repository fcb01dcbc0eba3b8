// Package walls has the rules of the tree that the linters of .golangci.yml cannot
// tell: those look at imports and identifiers, and these at every word of a file.
package walls

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// top is that of the repository.
const top = "../.."

// slurmWord is a name of a program of Slurm's, at the beginning of a word or of a
// part of an identifier, one of its variables, or its name as a scheduler: whoever
// means any cluster asks jobs.IsCluster.
var slurmWord = regexp.MustCompile(`(?:^|[^A-Za-z])(sbatch|squeue|sacctmgr|sacct|scancel|srun|scontrol|sinfo|scrontab)` +
	`|(?:^|[^A-Z])(Sbatch|Squeue|Sacctmgr|Sacct|Scancel|Srun|Scontrol|Sinfo|Scrontab)(?:$|[^a-z])` +
	`|(SLURMD?_[A-Z_]*|SBATCH|SchedulerSlurm)`)

// slurmFree are the places where Slurm is spoken: its own room, what is only for
// tests, and what is no part of the programs.
var slurmFree = []string{"slurm", "test", "scripts", "docs", "examples"}

// exception are words that a file may have, and why.
type exception struct {
	file, why string
	words     []string
}

// slurmExceptions are those of Slurm. One that is not needed any more fails, too.
var slurmExceptions = []exception{
	{"jobs/spec.go", "the list of the names", []string{"SchedulerSlurm"}},
	{"internal/doctor/conclude.go", "of clusters the doctor knows Slurm alone", []string{"SchedulerSlurm"}},
	{"internal/doctor/profile.go", "of clusters the doctor knows Slurm alone", []string{"SchedulerSlurm"}},
	{"internal/cli/doctornode.go", "of clusters the doctor knows Slurm alone", []string{"SchedulerSlurm"}},
	{"internal/cli/follow.go", "the flag --scrontab of berth follow and its help", []string{"scrontab"}},
	{"internal/cli/scrontab.go", "the flag --scrontab of berth follow and its help", []string{"scrontab"}},
	{"internal/cli/keyflags.go", "help of the flags that pass options on", []string{"sbatch"}},
	{"internal/cli/heldflags.go", "--login is a host of the first cluster", []string{"SchedulerSlurm"}},
	{"internal/cli/taskflags.go", "--login is a host of the first cluster", []string{"SchedulerSlurm"}},
	{"internal/cli/explain.go", "help says what a forecast asks", []string{"sbatch"}},
	{"internal/cli/status.go", "words after which the verb is suggested", []string{"squeue", "scancel"}},
	{"internal/cli/submit.go", "words after which the verb is suggested", []string{"sbatch"}},
	{"internal/cli/wait.go", "words after which the verb is suggested", []string{"srun"}},
}

// Below slurm/ alone stands a word of Slurm's: a name of one of its programs, or of
// its variables, in an identifier, a string or a comment.
func TestSlurmWords(t *testing.T) {
	found := map[string][]string{}
	for _, file := range sources(t) {
		top, _, _ := strings.Cut(file, "/")
		if slices.Contains(slurmFree, top) {
			continue
		}
		for _, w := range wordsOf(t, file) {
			for _, m := range slurmWord.FindAllStringSubmatch(w.text, -1) {
				name := m[1] + strings.ToLower(m[2]) + m[3]
				if !slices.ContainsFunc(slurmExceptions, func(e exception) bool { return e.file == file && slices.Contains(e.words, name) }) {
					t.Errorf("%s:%d: %s is a word of Slurm's: it belongs below slurm/, behind jobs.Cluster or jobs.NodeScheduler", file, w.line, name)
				}
				found[file] = append(found[file], name)
			}
		}
	}
	for _, e := range slurmExceptions {
		for _, w := range e.words {
			if !slices.Contains(found[e.file], w) {
				t.Errorf("%s has no %s any more: take it out of slurmExceptions", e.file, w)
			}
		}
	}
}

// A rule that finds nothing would hold for ever.
func TestSlurmWord(t *testing.T) {
	for text, want := range map[string]bool{
		"run sbatch --test-only": true, "parseSqueue": true, "scrontabTime": true, "askSinfo(ctx)": true, "$SLURM_JOB_ID": true, "SLURMD_NODENAME": true, "#SBATCH": true, "jobs.SchedulerSlurm": true,
		"statusInfo": false, "processinfo": false, "Slurm": false, "slurm": false, "disrun": false, "SLURM": false, "isSacctable": false,
	} {
		if got := slurmWord.MatchString(text); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}

// sources are the files of the programs, from the top of the repository: Go without
// its tests, and what it embeds from templates/.
func sources(t *testing.T) (out []string) {
	t.Helper()
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != top && (strings.HasPrefix(name, ".") || name == "testdata" || name == "vendor"):
			return fs.SkipDir
		case d.IsDir() || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := filepath.Rel(top, path)
		if strings.HasSuffix(name, ".go") || strings.HasPrefix(file, "templates/") && !strings.HasSuffix(name, ".md") {
			out = append(out, file)
		}
		return err
	})
	if err != nil || len(out) < 100 {
		t.Fatalf("%d files, %v", len(out), err)
	}
	return out
}

// word is an identifier, a string or a comment of a file.
type word struct {
	text string
	line int
}

// wordsOf reads them; a file that is no Go is one for each line.
func wordsOf(t *testing.T, file string) (out []word) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, file))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(file, ".go") {
		for i, line := range strings.Split(string(text), "\n") {
			out = append(out, word{line, i + 1})
		}
		return out
	}
	set := token.NewFileSet()
	f := set.AddFile(file, -1, len(text))
	var s scanner.Scanner
	s.Init(f, text, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		switch tok {
		case token.EOF:
			return out
		case token.IDENT, token.STRING, token.COMMENT:
			for i, line := range strings.Split(lit, "\n") {
				out = append(out, word{line, f.Line(pos) + i})
			}
		}
	}
}
