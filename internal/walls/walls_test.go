// Package walls has the rules of the tree that the linters of .golangci.yml cannot
// tell: those look at imports and identifiers, and these at every word of a file.
package walls

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// top is that of the repository.
const top = "../.."

// exception are words that a file may have, and why.
type exception struct {
	file, why string
	words     []string
}

// wall says which words stand in some places only.
type wall struct {
	of    string // whose words they are
	means string // what to do instead
	// words finds them in an identifier, a string (with its quotes) or a comment;
	// what its groups match, one after the other, is the name of a word.
	words *regexp.Regexp
	spare *regexp.Regexp // what is none of them, though it looks like one; nil is nothing
	// free are directories, and files, where they may stand: their own room, what is
	// only for tests, and what is no part of the programs.
	free       []string
	exceptions []exception // one that is not needed any more fails, too
}

func (w wall) isFree(file string) bool {
	return slices.ContainsFunc(w.free, func(f string) bool { return file == f || strings.HasPrefix(file, f+"/") })
}

func (w wall) allows(file, word string) bool {
	return slices.ContainsFunc(w.exceptions, func(e exception) bool { return e.file == file && slices.Contains(e.words, word) })
}

// check fails for each word that stands where it may not, and for each exception
// that is not needed.
func (w wall) check(t *testing.T) {
	t.Helper()
	found := map[string][]string{}
	all, err := scanned()
	if err != nil {
		t.Fatal(err)
	}
	for file, words := range all {
		if w.isFree(file) {
			continue
		}
		for _, text := range words {
			if w.spare != nil && w.spare.MatchString(text.text) {
				continue
			}
			for _, m := range w.words.FindAllStringSubmatch(text.text, -1) {
				name := strings.Join(m[1:], "")
				if !w.allows(file, name) {
					t.Errorf("%s:%d: %s is a word of %s: %s", file, text.line, name, w.of, w.means)
				}
				found[file] = append(found[file], name)
			}
		}
	}
	for _, e := range w.exceptions {
		for _, name := range e.words {
			if !slices.Contains(found[e.file], name) {
				t.Errorf("%s has no %s any more: take it out of the exceptions", e.file, name)
			}
		}
	}
}

// slurm's words are the name of a program of Slurm's, at the beginning of a word or of
// a part of an identifier, one of its variables, or its name as a scheduler: whoever
// means any cluster asks jobs.IsCluster.
var slurm = wall{
	of:    "Slurm's",
	means: "it belongs below slurm/, behind jobs.Cluster or jobs.NodeScheduler",
	words: regexp.MustCompile(`(?:^|[^A-Za-z])(sbatch|squeue|sacctmgr|sacct|scancel|srun|scontrol|sinfo|scrontab)` +
		`|(?:^|[^A-Z])(Sbatch|Squeue|Sacctmgr|Sacct|Scancel|Srun|Scontrol|Sinfo|Scrontab)(?:$|[^a-z])` +
		`|(SLURMD?_[A-Z_]*|SBATCH|SchedulerSlurm)`),
	free: []string{"slurm", "test", "scripts", "docs", "examples"},
	exceptions: []exception{
		{"jobs/spec.go", "the list of the names", []string{"SchedulerSlurm"}},
		{"internal/doctor/conclude.go", "of clusters the doctor knows Slurm alone", []string{"SchedulerSlurm"}},
		{"internal/doctor/profile.go", "of clusters the doctor knows Slurm alone", []string{"SchedulerSlurm"}},
		{"internal/cli/doctornode.go", "of clusters the doctor knows Slurm alone", []string{"SchedulerSlurm"}},
		{"internal/cli/follow.go", "the flag --scrontab of berth follow and its help", []string{"scrontab"}},
		{"internal/cli/scrontab.go", "the flag --scrontab of berth follow and its help", []string{"scrontab"}},
		{"internal/cli/scheduleinstall.go", "help of berth schedule install, and its first choice", []string{"Scrontab", "scrontab"}},
		{"internal/config/keys/place.go", "help of the flags that pass options on", []string{"sbatch"}},
		{"internal/cli/heldflags.go", "--login is a host of the first cluster", []string{"SchedulerSlurm"}},
		{"internal/cli/taskflags.go", "--login is a host of the first cluster", []string{"SchedulerSlurm"}},
		{"internal/cli/explain.go", "help says what a forecast asks", []string{"sbatch"}},
		{"internal/cli/status.go", "words after which the verb is suggested", []string{"squeue", "scancel"}},
		{"internal/cli/submit.go", "words after which the verb is suggested", []string{"sbatch"}},
		{"internal/cli/wait.go", "words after which the verb is suggested", []string{"srun"}},
	},
}

// apptainer's words are the names, options, variables, files and helpers of Apptainer
// and SingularityCE, and what they print.
var apptainer = wall{
	of:    "Apptainer's",
	means: "it belongs below apptainer/, behind jobs.Backend, or a name that says what it is for",
	words: regexp.MustCompile(`((?i:apptainer|singularity-?ce))` +
		`|(?:^|[^A-Z_])(SINGULARITY(?:ENV)?_)|(\.singularity\.d)` +
		`|(--(?:containall|cleanenv|no-home|no-mount|nv|nvccli|rocm|writable|writable-tmpfs))(?:$|[^a-z-])` +
		`|(squashfuse|fuse-overlayfs)` +
		`|(currently in use by another process|trying to read the squashfs image|while running %)`),
	spare: regexp.MustCompile(`^(apptainer|"berth/apptainer[a-z/]*")$`), // the package, where depguard allows it
	free:  []string{"apptainer", "test", "scripts", "docs", "examples"},
	exceptions: []exception{
		{"engine/place.go", "a comment of the script: the versions of its profile", []string{"Apptainer", "apptainer"}},
		{"engine/plan.go", "for now: hints of the planner", []string{"apptainer"}},
		{"internal/cli/image.go", "help", []string{"APPTAINER", "apptainer"}},
		{"internal/cli/imagebuild.go", "help", []string{"Apptainer", "apptainer"}},
		{"internal/cli/template.go", "help", []string{"apptainer"}},
		{"internal/config/profile/profile.go", "a key of profiles: the version that jobs find", []string{"Apptainer", "apptainer"}},
		{"jobs/backend.go", "the format of images: the directory of their own", []string{".singularity.d"}},
		{"jobs/backends.go", "the list of names: what people call a backend, and how they get one", []string{"apptainer"}},
		{"jobs/task.go", "a key of records: the version in a profile", []string{"Apptainer", "apptainer"}},
		{"overlay/mark.go", "a hint: how a person makes a SIF", []string{"apptainer"}},
	},
}

// backends are the names of those that are part of berth. Whoever asks what a backend
// can do asks jobs.Capabilities.
var backends = wall{
	of:    "a backend's",
	means: "ask jobs.Capabilities what it can do",
	words: regexp.MustCompile(`(?:^|[^A-Za-z])(Backend(?:Singularity|Docker|Bwrap|SSH|Local))(?:$|[^A-Za-z])|^["` + "`" + `](singularity|modal|daytona)["` + "`" + `]$`),
	free:  []string{"apptainer", "backends", "test", "scripts", "docs", "examples"},
	exceptions: []exception{
		{"internal/config/profile/profile.go", "keys of a profile: the versions it was made for", []string{"singularity"}},
		{"internal/config/table.go", "the configuration's table", []string{"BackendBwrap", "BackendDocker", "BackendSSH", "BackendSingularity", "daytona", "modal"}},
		{"internal/doctor/conclude.go", "what is chosen where the first that contains does not work", []string{"BackendDocker"}},
		{"jobs/backends.go", "the list of all", []string{"BackendBwrap", "BackendDocker", "BackendLocal", "BackendSSH", "BackendSingularity", "daytona", "modal", "singularity"}},
	},
}

// Below slurm/ alone stands a word of Slurm's: a name of one of its programs, or of
// its variables, in an identifier, a string or a comment.
func TestSlurmWords(t *testing.T) { slurm.check(t) }

// Below apptainer/ alone stands a word of Apptainer's or SingularityCE's.
func TestApptainerWords(t *testing.T) { apptainer.check(t) }

// A backend's name is known to its room, to the list that names all, and to the
// configuration's table.
func TestBackendNames(t *testing.T) { backends.check(t) }

// A rule that finds nothing would hold for ever.
func TestWords(t *testing.T) {
	for _, c := range []struct {
		wall  wall
		texts map[string]bool
	}{
		{slurm, map[string]bool{
			"run sbatch --test-only": true, "parseSqueue": true, "scrontabTime": true, "askSinfo(ctx)": true, "$SLURM_JOB_ID": true, "SLURMD_NODENAME": true,
			"#SBATCH": true, "jobs.SchedulerSlurm": true,
			"statusInfo": false, "processinfo": false, "Slurm": false, "slurm": false, "disrun": false, "SLURM": false, "isSacctable": false,
		}},
		{apptainer, map[string]bool{
			"HasApptainer": true, `"apptainer"`: true, "APPTAINERENV_A": true, "SINGULARITY_BIND": true, "/.singularity.d/env": true, "SingularityCE": true,
			"exec --nv IMAGE": true, "--writable-tmpfs": true, "squashfuse_ll": true, "image is currently in use by another process": true,
			"singularity_image": false, "use --backend singularity": false, "--nvidia": false, "--overlay": false,
		}},
		{backends, map[string]bool{
			"BackendDocker": true, "jobs.BackendSSH": true, `"singularity"`: true, `"modal"`: true,
			"BackendAuto": false, "BackendDockers": false, "use --backend singularity": false, `"modality"`: false,
		}},
	} {
		for text, want := range c.texts {
			if got := c.wall.words.MatchString(text); got != want {
				t.Errorf("%s, %q: %t, want %t", c.wall.of, text, got, want)
			}
		}
	}
}

// scanned has the words of each file. It looks once for all tests.
var scanned = sync.OnceValues(func() (map[string][]word, error) {
	files, err := sources()
	all := map[string][]word{}
	for _, file := range files {
		if err == nil {
			all[file], err = wordsOf(file)
		}
	}
	return all, err
})

// sources are the files of the programs, from the top of the repository: Go without
// its tests, and what it embeds from templates/.
func sources() (out []string, err error) {
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
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
	if err == nil && len(out) < 100 {
		err = fmt.Errorf("%d files are too few", len(out))
	}
	return out, err
}

// word is an identifier, a string or a comment of a file.
type word struct {
	text string
	line int
}

// wordsOf reads them; a file that is no Go is one for each line.
func wordsOf(file string) (out []word, err error) {
	text, err := os.ReadFile(filepath.Join(top, file))
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(file, ".go") {
		for i, line := range strings.Split(string(text), "\n") {
			out = append(out, word{line, i + 1})
		}
		return out, nil
	}
	set := token.NewFileSet()
	f := set.AddFile(file, -1, len(text))
	var s scanner.Scanner
	s.Init(f, text, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		switch tok {
		case token.EOF:
			return out, nil
		case token.IDENT, token.STRING, token.COMMENT:
			for i, line := range strings.Split(lit, "\n") {
				out = append(out, word{line, f.Line(pos) + i})
			}
		}
	}
}
