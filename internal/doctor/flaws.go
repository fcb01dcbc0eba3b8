package doctor

import (
	"strconv"
	"strings"
)

// flaw is a known weakness of a program: what a site should know about the
// version that it runs.
type flaw struct {
	program string // "slurm", "apptainer", "runc"
	id      string
	date    string // of the release that mends it
	what    string
	// fixed are the first sound versions, one for each release that got one,
	// oldest first. A release that is older than all of them is affected, a
	// newer one is not.
	fixed  []string
	since  string // the first affected version; "" is the first of all
	setuid bool   // only where the program is setuid root
}

// flaws are from the release notes and advisories of the projects. Only what
// lets somebody else reach a user's jobs, or loses data, is listed.
var flaws = []flaw{
	{"slurm", "CVE-2022-29500, 29501, 29502", "2022-05-04", "any user can run processes as others, root included", []string{"20.11.9", "21.08.8"}, "", false},
	{"slurm", "CVE-2023-41914", "2023-10-11", "races over files let a user take over files of others, or remove what is in directories", []string{"22.05.10", "23.02.6"}, "", false},
	{"slurm", "CVE-2023-49933 to 49938", "2023-12-13", "messages between its parts can be altered or used again, tokens too", []string{"22.05.11", "23.02.7", "23.11.1"}, "", false},
	{"slurm", "CVE-2024-48936", "2024-10-23", "with stepmgr a user can run processes in jobs of others", []string{"24.05.4"}, "24.05", false},
	{"slurm", "CVE-2025-43904", "2025-05-07", "a coordinator can make an administrator", []string{"23.11.11", "24.05.8", "24.11.5"}, "", false},
	{"slurm", "CVE-2026-65107 and seven more", "2026-09-02", "sbcast without its credential, overflows in slurmstepd, questions to the accounting that are not checked", []string{"25.05.9", "25.11.8", "26.05.4"}, "", false},
	{"apptainer", "CVE-2023-30549", "2023-04-25", "a setuid installation mounts a user's ext3 images by the kernel, which such an image can attack", []string{"1.1.8"}, "", true},
	{"apptainer", "CVE-2024-3727", "2024-05", "digests of images that are pulled are not checked as they should be", []string{"1.3.2"}, "", false},
	{"apptainer", "CVE-2025-65105", "2025-12-02", "--security may not be applied, silently (berth does not use it)", []string{"1.4.5"}, "", false},
	{"apptainer", "ext3 layers", "", "with fuse2fs below 1.47.3 files of an ext3 layer may silently not be removed, and 1.4.3 breaks read-only ones", []string{"1.4.4"}, "", false},
	{"runc", "CVE-2024-21626", "2024-01-31", "a container can reach the host's files through a leaked descriptor", []string{"1.1.12"}, "", false},
	{"runc", "CVE-2025-31133, 52565, 52881", "2025-11-05", "a container can make runc write to the host's /proc", []string{"1.2.8", "1.3.3", "1.4.0"}, "", false},
}

// knownFlaws lists what a version of a program is known for.
func knownFlaws(program, version string, setuid bool) []flaw {
	var out []flaw
	for _, f := range flaws {
		if f.program == program && (setuid || !f.setuid) && affected(version, f.since, f.fixed) {
			out = append(out, f)
		}
	}
	return out
}

// affected tells whether a version is older than the first sound one of its
// release; a release without one is sound if it is newer than all that have
// one. An unknown version is not affected: nobody knows.
func affected(version, since string, fixed []string) bool {
	v, ok := numbers(version)
	if !ok {
		return false
	}
	if first, ok := numbers(since); ok && less(v, first) {
		return false
	}
	for _, f := range fixed {
		if n, _ := numbers(f); n[0] == v[0] && n[1] == v[1] {
			return less(v, n)
		}
	}
	newest, _ := numbers(fixed[len(fixed)-1])
	return less(v, newest)
}

// numbers reads "24.11.5-2" as 24, 11, 5; a missing third one is 0.
func numbers(version string) (n [3]int, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return n, false
	}
	for i, p := range parts {
		end := strings.IndexFunc(p, func(r rune) bool { return r < '0' || r > '9' })
		if end >= 0 {
			p = p[:end]
		}
		x, err := strconv.Atoi(p)
		if err != nil && i < 2 {
			return n, false
		}
		n[i] = x
	}
	return n, true
}

func less(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// flawFindings is one warning for each flaw, or nothing.
func flawFindings(subject, program, version string, setuid bool) []Finding {
	var out []Finding
	for _, f := range knownFlaws(program, version, setuid) {
		when := ""
		if f.date != "" {
			when = " (" + f.date + ")"
		}
		out = append(out, Finding{Status: Warn, Subject: subject, Why: version + " is older than what mends " + f.id + when + ": " + f.what,
			Do: "ask for " + strings.Join(f.fixed, ", ") + " or newer, unless the package of your distribution has the mending"})
	}
	return out
}
