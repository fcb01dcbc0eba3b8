package workspace

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxPathBytes is the longest path git can check out (PATH_MAX).
const maxPathBytes = 4096

// refusedName says why git would not accept a file of this name in a tree, or
// "". These are the rules of git's fsck (is_hfs_dotgit and is_ntfs_dotgit in
// git's utf8.c and path.c): names that some file system takes for ".git".
func refusedName(name string) string {
	if hfsDot(name, "git") || slices.ContainsFunc(windowsNames(name), ntfsDotGit) {
		return "git refuses the name: some file systems take it for .git"
	}
	return ""
}

// windowsNames is the name and what stands behind each backslash in it, where
// Windows would see a name of its own.
func windowsNames(name string) []string {
	names := []string{name}
	for i, c := range []byte(name) {
		if c == '\\' {
			names = append(names, name[i+1:])
		}
	}
	return names
}

// refusedUnlessFile says why git would not accept something of this name that
// is no file (a symbolic link or a directory), or "".
func refusedUnlessFile(name string, dir bool) string {
	if isGitModules(name) {
		return "git refuses .gitmodules when it is not a file"
	}
	if dir && isGitAttributes(name) {
		return "git refuses .gitattributes as a directory"
	}
	return ""
}

func isGitModules(name string) bool {
	return hfsDot(name, "gitmodules") || slices.ContainsFunc(windowsNames(name), func(n string) bool {
		return ntfsGitModules().MatchString(ntfsTrim(n, ":"))
	})
}

func isGitAttributes(name string) bool {
	return hfsDot(name, "gitattributes") || ntfsGitAttributes().MatchString(ntfsTrim(name, ":"))
}

// hfsDot says whether HFS+ takes name for "."+word: it ignores case and
// certain invisible characters. As in git, bytes that are not UTF-8 end the
// comparison.
func hfsDot(name, word string) bool {
	want := "." + word
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && n <= 1 {
			break
		}
		name = name[n:]
		if hfsIgnores(r) {
			continue
		}
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		if want == "" || r != rune(want[0]) {
			return false
		}
		want = want[1:]
	}
	return want == ""
}

func hfsIgnores(r rune) bool {
	return r >= 0x200c && r <= 0x200f || r >= 0x202a && r <= 0x202e ||
		r >= 0x206a && r <= 0x206f || r == 0xfeff
}

// ntfsTrim cuts what NTFS ignores at the end of a name: what follows one of
// the stops, then dots and spaces.
func ntfsTrim(name, stops string) string {
	if i := strings.IndexAny(name, stops); i >= 0 {
		name = name[:i]
	}
	return strings.TrimRight(name, " .")
}

func ntfsDotGit(name string) bool {
	name = ntfsTrim(name, `\:`)
	return strings.EqualFold(name, ".git") || strings.EqualFold(name, "git~1")
}

// The short names NTFS gives to long ones: the first four by position, later
// ones by a hash.
var (
	ntfsGitModules    = ntfsShort("gitmodules", "gitmod", "gi7eba")
	ntfsGitAttributes = ntfsShort("gitattributes", "gitatt", "gi7d29")
)

func ntfsShort(word, first, hash string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { // not at every start
		alternatives := []string{`\.` + word, first + "~[1-4]"}
		for n := len(hash); n >= 0; n-- {
			alternatives = append(alternatives, fmt.Sprintf("%s~[1-9][0-9]{%d}", hash[:n], len(hash)-n))
		}
		return regexp.MustCompile("(?i)^(" + strings.Join(alternatives, "|") + ")$")
	})
}

// readByGit says whether git's fsck looks into files of this name.
func readByGit(name string) bool { return isGitModules(name) || isGitAttributes(name) }
