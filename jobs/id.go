package jobs

import (
	"fmt"
	"strings"
)

// Short returns what people see of an id: its last 8 characters.
func Short(id string) string {
	if len(id) <= 8 {
		return id
	}
	return id[len(id)-8:]
}

// ValidID tells whether id is a UUID in its usual text form, in lower case.
func ValidID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i, c := range []byte(id) {
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return false
		}
	}
	return true
}

// MatchID tells whether the user's word for a job, an unambiguous prefix or
// suffix of its id, names this id. Upper case is accepted.
func MatchID(id, word string) bool {
	word = strings.ToLower(word)
	return word != "" && (strings.HasPrefix(id, word) || strings.HasSuffix(id, word))
}

// maxSlug keeps job names, branch names and paths readable.
const maxSlug = 40

// Slug turns a task's free name into what may stand in job names, branch names
// and paths: lower-case ASCII letters, digits and single dashes, at most 40
// characters. A name with none of these becomes "task".
func Slug(name string) string {
	var b strings.Builder
	dash := false
	for _, r := range strings.ToLower(name) {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			dash = b.Len() > 0
			continue
		}
		if dash && b.Len() >= maxSlug-1 || b.Len() >= maxSlug {
			break
		}
		if dash {
			b.WriteByte('-')
			dash = false
		}
		b.WriteRune(r)
	}
	if b.Len() == 0 {
		return "task"
	}
	return b.String()
}

// JobName is the name an attempt carries in its scheduler. It is the key by
// which an attempt is found again after an unclear submission, so it holds the
// 48 random bits at the end of the attempt's id, not only the short form.
func JobName(slug, attemptID string) string {
	tail := attemptID
	if len(tail) > 12 {
		tail = tail[len(tail)-12:]
	}
	return "berth-" + slug + "-" + tail
}

// ReaperName is the name of the jobs that look after an attempt when its
// scheduler has ended it.
func ReaperName(attemptID string) string { return "berth-reap-" + attemptID }

// StandbyName is the name of the n-th standby behind an attempt.
func StandbyName(attemptID string, n int) string {
	if n > 1 {
		return fmt.Sprintf("berth-next%d-%s", n, attemptID)
	}
	return "berth-next-" + attemptID
}

// BranchName is the branch on which a job's result comes back.
func BranchName(slug, jobID string) string {
	return "berth/" + slug + "/" + Short(jobID)
}
