package daytonatest

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// kept is a snapshot: a copy of a sandbox's directory.
type kept struct {
	id, name, state, dir, source string
	created                      time.Time
	next                         []string // states, one for each look
}

func (k *kept) show() map[string]any {
	return map[string]any{
		"id": k.id, "organizationId": "org", "general": false, "name": k.name, "state": k.state, "size": 0.5, "entrypoint": nil, "cpu": 1, "gpu": 0, "mem": 1, "disk": 3,
		"errorReason": nil, "createdAt": k.created.UTC().Format(time.RFC3339Nano), "updatedAt": k.created.UTC().Format(time.RFC3339Nano), "lastUsedAt": nil, "sourceSandboxId": k.source,
	}
}

func (k *kept) move() {
	if len(k.next) > 0 {
		k.state, k.next = k.next[0], k.next[1:]
	}
}

func copyHome(from, to string) error {
	home := filepath.Join(to, "home")
	if err := os.RemoveAll(home); err != nil {
		return err
	}
	return os.CopyFS(home, os.DirFS(filepath.Join(from, "home")))
}

func (s *Server) keptAs(name string) *kept {
	for _, k := range s.kept {
		if k.name == name || k.id == name {
			return k
		}
	}
	return nil
}

// snapshot begins one; it is seen, and then active, at later looks.
func (s *Server) snapshot(w http.ResponseWriter, r *http.Request, b *box) {
	var c struct{ Name string }
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil || c.Name == "" {
		problem(w, 400, "name: %v", err)
		return
	}
	switch {
	case b.state != "started" && b.state != "stopped":
		problem(w, 400, "Sandbox is not in valid state")
		return
	case s.keptAs(c.Name) != nil:
		problem(w, 409, "Snapshot with name %s already exists", c.Name)
		return
	}
	s.made++
	k := &kept{id: "sn-" + strconv.Itoa(s.made), name: c.Name, state: "snapshotting", source: b.id, created: time.Now(), next: []string{"pulling", "active"}}
	k.dir = filepath.Join(s.dir, k.id)
	if err := copyHome(b.dir, k.dir); err != nil {
		problem(w, 500, "%v", err)
		return
	}
	s.kept = append(s.kept, k)
	b.next, b.state = []string{b.state}, "snapshotting"
	answer(w, 200, b.show(s))
}

// snapshots lists them, two at a time, whatever limit is asked for.
func (s *Server) snapshots(w http.ResponseWriter, r *http.Request) {
	const size = 2
	page, _ := strconv.Atoi(r.URL.Query().Get("page"))
	s.mu.Lock()
	defer s.mu.Unlock()
	var match []*kept
	for _, k := range s.kept {
		if strings.Contains(k.name, r.URL.Query().Get("name")) {
			match = append(match, k)
		}
	}
	items := []any{}
	for i, k := range match {
		if i/size == max(page, 1)-1 {
			k.move()
			items = append(items, k.show())
		}
	}
	answer(w, 200, map[string]any{"items": items, "total": len(match), "page": max(page, 1), "totalPages": (len(match) + size - 1) / size})
}

func (s *Server) withKept(f func(http.ResponseWriter, *kept)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		k := s.keptAs(r.PathValue("id"))
		if k == nil {
			problem(w, 404, "Snapshot with ID %s not found", r.PathValue("id"))
			return
		}
		f(w, k)
	}
}

func (s *Server) forget(w http.ResponseWriter, k *kept) {
	var left []*kept
	for _, o := range s.kept {
		if o != k {
			left = append(left, o)
		}
	}
	s.kept = left
	_ = os.RemoveAll(k.dir)
	w.WriteHeader(http.StatusOK)
}

func (s *Server) activate(w http.ResponseWriter, k *kept) {
	if k.state != "inactive" {
		problem(w, 400, "Snapshot is not inactive")
		return
	}
	k.next = []string{"pulling", "active"}
	answer(w, 200, k.show())
}

// Kept names the snapshots.
func (s *Server) Kept() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kept {
		names = append(names, k.name)
	}
	return names
}

// PutKept puts a snapshot into a state, as another client would.
func (s *Server) PutKept(name, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keptAs(name)
	k.state, k.next = state, nil
}
