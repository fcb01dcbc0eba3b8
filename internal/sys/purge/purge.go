// Package purge knows from which directories of this machine old files are
// removed: what its profile says, and what tmpfiles.d(5) does. What a site does
// by scripts of its own cannot be read.
package purge

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"berth/jobs"
)

// Known returns below which directory the files of dir are removed when they
// were not used for age, such as "30 days", as far as the profile says so; ""
// is that it does not.
func Known(dir string, site []jobs.Purge) (at, age string) {
	for _, p := range site {
		if under(dir, p.Dir) && len(p.Dir) > len(at) {
			at, age = p.Dir, fmt.Sprintf("%d days", p.Days)
		}
	}
	return at, age
}

// Of is [Known], and else what tmpfiles.d says, such as "10d". root is put before
// the paths of that.
func Of(dir string, site []jobs.Purge, root string) (at, age string) {
	if at, age := Known(dir, site); at != "" {
		return at, age
	}
	if _, err := os.Stat(filepath.Join(root+"/", "/run/systemd/system")); err != nil {
		return "", "" // no systemd reads them
	}
	for d, a := range tmpfilesAges(root) {
		if under(dir, d) && len(d) > len(at) {
			at, age = d, a
		}
	}
	return at, age
}

// Looks tells whether a component of a path is called scratch, which sites purge
// after some weeks.
func Looks(dir string) bool {
	for part := range strings.SplitSeq(strings.ToLower(dir), "/") {
		if strings.HasPrefix(part, "scratch") || part == "tmp" {
			return true
		}
	}
	return false
}

// under tells whether a path is dir or below it, by whole components.
func under(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// tmpfilesAges reads which directories systemd-tmpfiles empties by age
// (tmpfiles.d(5)); a file in /etc takes the place of one of its name.
func tmpfilesAges(root string) map[string]string {
	byName := map[string]string{}
	for _, base := range []string{"/usr/lib", "/run", "/etc"} {
		files, _ := filepath.Glob(filepath.Join(root+"/", base+"/tmpfiles.d/*.conf"))
		for _, p := range files {
			byName[filepath.Base(p)] = p
		}
	}
	ages := map[string]string{}
	for _, p := range byName {
		b, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 6 || strings.HasPrefix(f[0], "#") || !strings.ContainsAny(f[0][:1], "dDvqQe") {
				continue
			}
			if f[5] == "-" || !filepath.IsAbs(f[1]) || strings.Contains(f[1], "%") {
				continue
			}
			if age := strings.TrimLeft(f[5], "~abcmABCM:"); age != "0" && age != "" {
				ages[filepath.Clean(f[1])] = age
			}
		}
	}
	return ages
}
