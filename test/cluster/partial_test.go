//go:build cluster

package cluster

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// partial leaves something out of its artifacts and of its branch for every limit,
// and has a git that runs its own program for whoever asks git about its tree.
const partial = `---
name: partial
agent:
  command: |
    mkdir out sub
    echo here >out/log; echo mine >out/locked; chmod 000 out/locked; mkdir out/shut; echo in >out/shut/f; chmod 000 out/shut
    head -c 3000 /dev/zero | tr '\0' a >out/big; echo 1 >out/m1; echo 2 >out/m2; echo 3 >out/m3
    head -c 3000 /dev/zero | tr '\0' b >large; echo 1 >n1; echo 2 >n2; echo 3 >n3; echo 4 >n4
    printf 'out/\nsub/\n' >.gitignore
    git init -q sub
    for g in . sub; do git -C "$g" config core.fsmonitor 'touch DIR/ran; false'; done
workspace:
  repo: repo
artifacts: ["out/"]
results:
  artifact_file: 1KiB
  artifact_files: 3
  branch_file: 1KiB
  branch_files: 4
---
`

// What a task's limits and the file system leave out is told by every verb that
// tells how the job ended, with where it is and how it is brought; it is brought
// so, and the tree that is kept for that is no repository of the task's.
func TestPartial(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	s.ok(t, "cd "+d+" && /mnt/share/examples/fix-the-test/make-repo repo && cat >partial.md <<'E'\n"+strings.ReplaceAll(partial, "DIR", d)+"E")
	run := s.sh(t, "cd "+d+" && berth run --retry off --image "+s.image+" partial.md")
	m := regexp.MustCompile(`job ([0-9a-f]{8}) submitted`).FindStringSubmatch(run.err)
	if m == nil {
		t.Fatalf("%+v", run)
	}
	id := m[1]
	st := s.status(t, id)
	work := st.Dir + "/work"

	want := []omission{
		{"branch", "too_many", 1, []string{"n4"}},
		{"branch", "too_large", 1, []string{"large"}},
		{"artifacts", "too_many", 1, []string{"out/m3"}},
		{"artifacts", "too_large", 1, []string{"out/big"}},
		{"artifacts", "unreadable", 2, []string{"out/locked", "out/shut"}},
	}
	if st.State != "completed" || st.ExitCode != 11 || !st.Taken || fmt.Sprint(st.LeftOut) != fmt.Sprint(want) || st.Kept.Dir != "work" || st.Kept.Lost != 0 {
		t.Errorf("the record: %+v", st)
	}
	told := []string{
		"branch: 1 path beyond the limit on files (2 bytes): n4",
		"branch: 1 path larger than the limits allow (2.9 KiB): large",
		"artifacts: 1 path beyond the limit on files (2 bytes): out/m3",
		"artifacts: 1 path larger than the limits allow (2.9 KiB): out/big",
		"artifacts: 2 paths that cannot be read (5 bytes): out/locked, out/shut",
		"berth collect " + id + " brings them",
		"untrusted",
	}
	wait := s.sh(t, "berth wait "+id)
	for _, c := range []struct {
		verb, text string
		code, want int
	}{
		{"run", run.err, run.code, 11},
		{"wait", wait.err, wait.code, 11},
		{"status", s.ok(t, "berth status "+id), 0, 0},
		{"explain", s.ok(t, "berth explain "+id), 0, 0},
		{"status --json", s.ok(t, "berth status --json "+id), 0, 0},
	} {
		words := told
		if c.verb != "explain" {
			words = append(slices.Clone(words), work) // where they are
		}
		for _, w := range words {
			if !strings.Contains(c.text, w) {
				t.Errorf("berth %s does not say %q:\n%s", c.verb, w, c.text)
			}
		}
		if c.code != c.want {
			t.Errorf("berth %s: exit code %d, want %d", c.verb, c.code, c.want)
		}
	}

	// The rest came back.
	names := `find . -type f -printf '%P\n' | sort | tr '\n' ' '`
	if got := s.ok(t, "cd "+st.Dir+"/artifacts && "+names+" && cat out/log"); got != "out/log out/m1 out/m2 here" {
		t.Errorf("the artifacts: %q", got)
	}
	if got := s.ok(t, "git -C "+d+"/repo diff --name-only "+st.Result.Base+" "+st.Branch+" | tr '\\n' ' '"); got != ".gitignore n1 n2 n3" {
		t.Errorf("the branch: %q", got)
	}

	// A git that does obey shows that the task's would have run something.
	if got := s.ok(t, fmt.Sprintf("cd %s && git clone -q repo own && git -C own config core.fsmonitor 'touch %s/own-ran; false' && git -C own status >own-status && ls own-ran", d, d)); got != "own-ran" {
		t.Errorf("git has no fsmonitor here: %q", got)
	}
	for _, in := range []string{work, work + "/sub", work + "/git-of-the-task"} {
		if a := s.sh(t, "cd "+in+" 2>/dev/null && git status"); a.code == 0 {
			t.Errorf("git takes %s for a repository: %s", in, a.out)
		}
	}
	if got := s.ok(t, "ls "+d+"; find "+work+" -iname '*git*' -printf '%P '"); strings.Contains(got, "\nran") || !strings.HasSuffix(got, "\n.gitignore") {
		t.Errorf("the task's git is kept, or ran: %s", got)
	}

	a := s.want(t, "berth collect "+id, 11)
	if !regexp.MustCompile(`(?m)^not here\s+what is left out of the branch \(2 in all\); --into DIR brings it$`).MatchString(a.out) || !strings.Contains(a.out, "run no git there") {
		t.Errorf("collect: %s", a.out)
	}
	artifacts := "out/big out/locked out/log out/m1 out/m2 out/m3 out/shut/f"
	check := " && cat out/locked out/m3 out/shut/f && tr -d a <out/big | wc -c && wc -c <out/big"
	if got := s.ok(t, "cd "+st.Dir+"/artifacts && "+names+check); got != artifacts+" mine\n3\nin\n0\n3000" {
		t.Errorf("collected artifacts: %q", got)
	}
	a = s.want(t, "berth collect --into "+d+"/into "+id, 0)
	if got := s.ok(t, "cd "+d+"/into && "+names+check+" && cat n4 && tr -d b <large | wc -c && wc -c <large"); got != "large n4 "+artifacts+" mine\n3\nin\n0\n3000\n4\n0\n3000" {
		t.Errorf("collected into a directory: %q\n%s", got, a.out)
	}
	if got := s.ok(t, "ls "+d); strings.Contains(got, "\nran") {
		t.Errorf("collecting ran the task's program: %s", got)
	}
	s.quiet(t)
}

// What comes back and would be obeyed, leads out, or runs is named in one line,
// and is outside of the scope that does not name it.
func TestLookAt(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	s.ok(t, "cd "+d+" && /mnt/share/examples/fix-the-test/make-repo repo")
	command := quote(`mkdir .claude; echo {} >.claude/settings.json; echo true >.envrc; echo >berth.toml; ln -s /etc/passwd notes; printf '#!/bin/sh\n' >tool; chmod +x tool; echo >>wordcount.py`)
	// Both at once: one that names nothing, and one that names all.
	run := fmt.Sprintf("cd %s && berth run --retry off --image %s --workspace repo ", d, s.image)
	var scopes string
	for _, p := range []string{".claude", ".envrc", "berth.toml", "notes", "tool", "wordcount.py"} {
		scopes += "--scope " + p + " "
	}
	second := make(chan answer, 1)
	go func() { second <- s.sh(t, run+scopes+"-- "+command) }()
	first := s.sh(t, run+"-- "+command)
	outside := []string{".claude/settings.json", ".envrc", "berth.toml", "notes"}
	for _, c := range []struct {
		a       answer
		code    int
		outside []string
	}{{first, 9, outside}, {<-second, 0, nil}} {
		m := regexp.MustCompile(`job ([0-9a-f]{8}) submitted`).FindStringSubmatch(c.a.err)
		if m == nil {
			t.Fatalf("%+v", c.a)
		}
		st := s.status(t, m[1])
		if c.a.code != c.code || st.ExitCode != c.code || st.State != "completed" || !st.Taken || st.Result.Files != 6 || !slices.Equal(st.Result.OutOfScope, c.outside) {
			t.Errorf("exit code %d, want %d: %+v\n%s", c.a.code, c.code, st, c.a.err)
		}
		look := []string{".claude/settings.json", ".envrc", "berth.toml", "notes -> /etc/passwd", "tool (executable)"}
		if !slices.Equal(st.Result.LookAt, look) {
			t.Errorf("the record: %q", st.Result.LookAt)
		}
		line := `look at:?\s+` + regexp.QuoteMeta(strings.Join(look, ", "))
		for verb, text := range map[string]string{"run": c.a.err, "wait": s.want(t, "berth wait "+m[1], c.code).err, "status": s.ok(t, "berth status "+m[1]), "explain": s.ok(t, "berth explain "+m[1])} {
			if n := len(regexp.MustCompile(`(?m)^(berth: )?`+line+`$`).FindAllString(text, -1)); n != 1 {
				t.Errorf("berth %s says %d times what to look at:\n%s", verb, n, text)
			}
		}
	}
	s.quiet(t)
}
