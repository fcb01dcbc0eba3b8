package slurm

import (
	"context"
	"os"
	"strconv"
	"strings"

	"berth/jobs"
)

// name puts names in the place of the numbers of the users who cancelled jobs. A
// number that has none stays one.
func (s *Scheduler) name(ctx context.Context, rows []row) {
	for i := range rows {
		if st := &rows[i].status; st.By != "" {
			by := s.userName(ctx, st.By)
			st.Reason = strings.Replace(st.Reason, "by "+st.By, "by "+by, 1)
			st.By = by
		}
	}
}

// userName asks the system's own id(1), which knows the users of a directory
// service, where this static program does not; once for each number.
func (s *Scheduler) userName(ctx context.Context, uid string) string {
	if !isID(uid) {
		return uid
	}
	s.mu.Lock()
	known := s.users[uid]
	s.mu.Unlock()
	if known != "" {
		return known
	}
	name := uid
	if out, err := s.command(ctx, s.cfg.QueryTimeout, []string{"TZ=UTC"}, "id", "-nu", uid); err == nil && out.ok() {
		if n := strings.TrimSpace(out.stdout); n != "" && jobs.CheckText("", n) == nil {
			name = n
		}
	}
	if name == uid && s.cfg.Login == "" && uid == strconv.Itoa(os.Getuid()) {
		name = "you"
	}
	s.mu.Lock()
	s.users[uid] = name
	s.mu.Unlock()
	return name
}
