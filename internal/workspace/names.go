package workspace

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxPathBytes is the longest path git can check out (PATH_MAX).
const maxPathBytes = 4096

// refusedName says why git would not accept a file of this name in a tree, or
// "". These are the rules of git's fsck (is_hfs_dotgit and is_ntfs_dotgit in
// git's utf8.c and path.c): names that some file system takes for ".git".
func refusedName(name string) string {
	switch {
	case hfsDot(name, "git"), ntfsDotGit(name):
		return "git refuses the name: some file systems take it for .git"
	case strings.Contains(name, `\`):
		for _, part := range strings.Split(name, `\`)[1:] {
			if ntfsDotGit(part) {
				return "git refuses the name: Windows takes it for a path with .git in it"
			}
		}
	}
	return ""
}

// refusedLink says why git would not accept a symbolic link of this name, or
// "": .gitmodules must be a file.
func refusedLink(name string) string {
	if hfsDot(name, "gitmodules") || ntfsGitModules.MatchString(ntfsTrim(name)) {
		return "git refuses .gitmodules as a symbolic link"
	}
	return ""
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

// ntfsTrim cuts what NTFS ignores at the end of a name: a stream after a
// colon, then dots and spaces.
func ntfsTrim(name string) string {
	if i := strings.IndexAny(name, `\:`); i >= 0 {
		name = name[:i]
	}
	return strings.TrimRight(name, " .")
}

func ntfsDotGit(name string) bool {
	name = ntfsTrim(name)
	return strings.EqualFold(name, ".git") || strings.EqualFold(name, "git~1")
}

// The short names NTFS gives .gitmodules: the first four by position, later
// ones by a hash.
var ntfsGitModules = regexp.MustCompile(`(?i)^(\.gitmodules|gitmod~[1-4]|gi7eba~[1-9]|gi7eb~[1-9][0-9]|gi7e~[1-9][0-9]{2}|gi7~[1-9][0-9]{3}|gi~[1-9][0-9]{4}|g~[1-9][0-9]{5}|~[1-9][0-9]{6})$`)

// readByGit says whether git itself interprets files of this name, so that its
// fsck looks into them. It says yes rather too often.
func readByGit(name string) bool {
	return strings.HasPrefix(strings.ToLower(name), ".git") || strings.Contains(name, "~") ||
		hfsDot(name, "gitmodules") || hfsDot(name, "gitattributes")
}
