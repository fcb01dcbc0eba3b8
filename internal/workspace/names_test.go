package workspace

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// The rules for names agree with those of the git that is here.
func TestNamesAgreeWithGit(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "x\n"})
	blob := f.git(f.repo, "rev-parse", "HEAD:a")
	words := []string{".git", ".GIT", ".gIt", "git~1", "GIT~1", "git~2", ".gitmodules", ".GitModules", "gitmod~1", "GITMOD~4", "gitmod~5", "gi7eba~1", "GI7EBA~9", "gi7eb~10", "gi7e~123", "~1000000",
		".gitattributes", "gitatt~1", "gi7d29~1", ".gitignore", "gitign~1", ".mailmap", "git", ".gitx", "x.git", "a", ".g", ".gi", "~1", "g~100000", "gi~10000", "gi7~1000"}
	edges := []string{"", " ", ".", "..", " . ", ":", ":$DATA", "::$INDEX_ALLOCATION", "\\", "\\x", "\u200c", "\ufeff", "\xff", "\xe2", "x", "\n", "é", "\u202e."}
	type entry struct{ mode, name string }
	var entries []entry
	seen := map[string]bool{".": true, "..": true}
	for _, w := range words {
		for _, e := range edges {
			for _, name := range []string{w + e, e + w, w[:1] + e + w[1:]} {
				if !seen[name] {
					entries = append(entries, entry{mode: "100644", name: name}, entry{mode: "120000", name: name}, entry{mode: "040000", name: name})
				}
				seen[name] = true
			}
		}
	}
	makeTrees := func(line func(i int) string) []string {
		var in bytes.Buffer
		for i := range entries {
			in.WriteString(line(i) + "\x00\x00")
		}
		cmd := exec.CommandContext(testContext(t), "git", "mktree", "-z", "--batch")
		cmd.Dir, cmd.Stdin = f.repo, &in
		out, err := cmd.Output()
		must(t, err)
		trees := strings.Fields(string(out))
		same(t, "trees", len(trees), len(entries))
		return trees
	}
	// A complaint about a directory names the directory, so each is another.
	dirs := makeTrees(func(i int) string { return fmt.Sprintf("100644 blob %s\tfile%d", blob, i) })
	trees := makeTrees(func(i int) string {
		if entries[i].mode == "040000" {
			return fmt.Sprintf("040000 tree %s\t%s", dirs[i], entries[i].name)
		}
		return fmt.Sprintf("%s blob %s\t%s", entries[i].mode, blob, entries[i].name)
	})
	cmd := exec.CommandContext(testContext(t), "git", "fsck", "--strict", "--no-dangling")
	cmd.Dir = f.repo
	complaints, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("git found nothing wrong")
	}
	refused := map[string]string{}
	for line := range strings.Lines(string(complaints)) {
		if id, why, ok := strings.Cut(strings.TrimPrefix(line, "error in tree "), ": "); ok && id != line {
			refused[id] += strings.TrimSpace(why) + " "
		}
	}
	for i, e := range entries {
		ours := refusedName(e.name)
		if ours == "" && e.mode != "100644" {
			ours = refusedUnlessFile(e.name, e.mode == "040000")
		}
		if git := refused[trees[i]] + refused[dirs[i]]; (ours != "") != (git != "") {
			t.Errorf("%s %q: refused here: %q, by git: %q", e.mode, e.name, ours, git)
		}
	}
	t.Logf("%d names, %d refused", len(seen), len(refused))
}
