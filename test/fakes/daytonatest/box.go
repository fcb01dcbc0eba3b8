package daytonatest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/test/fakes/sweep"
)

// box is a sandbox: a directory, and the processes that were started in it. What
// is here is guarded by the server, except for terminals.
type box struct {
	id, name, region, image       string
	labels                        map[string]string
	state, why                    string
	repairable                    bool
	next                          []string // states, one for each look
	cpu, memory, disk             int
	noNetwork                     bool
	cidrs, domains                string
	autoStop, autoDelete, archive int
	ttl                           int
	created                       time.Time
	dir                           string
	lag                           int

	tmu       sync.Mutex
	terminals map[string]*terminal
}

// move is one step on the way.
func (b *box) move() {
	if len(b.next) > 0 {
		b.state, b.next = b.next[0], b.next[1:]
	}
}

func (b *box) show(s *Server) map[string]any {
	m := map[string]any{
		"id": b.id, "organizationId": "org", "name": b.name, "user": "daytona", "env": map[string]string{}, "labels": b.labels, "public": false,
		"networkBlockAll": b.noNetwork, "target": b.region, "cpu": b.cpu, "gpu": 0, "memory": b.memory, "disk": b.disk, "state": b.state,
		"toolboxProxyUrl": strings.TrimSuffix(s.URL, "/api") + "/toolbox", "createdAt": b.created.UTC().Format(time.RFC3339Nano), "sandboxClass": "container",
		"autoStopInterval": b.autoStop, "autoDeleteInterval": b.autoDelete, "autoArchiveInterval": b.archive, "recoverable": b.repairable,
		"somethingOfTomorrow": map[string]any{"x": []int{1}},
	}
	if b.why != "" {
		m["errorReason"] = b.why
	}
	if b.cidrs != "" {
		m["networkAllowList"] = b.cidrs
	}
	if b.domains != "" {
		m["domainAllowList"] = b.domains
	}
	if b.ttl > 0 {
		m["autoDestroyAt"] = b.created.Add(time.Duration(b.ttl) * time.Minute).UTC().Format(time.RFC3339Nano)
	}
	return m
}

func (s *Server) start(w http.ResponseWriter, _ *http.Request, b *box) {
	switch b.state {
	case "stopped":
		b.state, b.next = "starting", []string{"starting", "started"}
	case "archived":
		b.state, b.next = "restoring", []string{"restoring", "started"}
	case "started":
	case "stopping", "archiving", "starting":
		problem(w, 409, "Sandbox state change in progress")
		return
	default:
		problem(w, 400, "Sandbox is not in valid state")
		return
	}
	answer(w, 200, b.show(s))
}

func (s *Server) stop(w http.ResponseWriter, _ *http.Request, b *box) {
	if b.state != "started" {
		problem(w, 400, "Sandbox is not started")
		return
	}
	b.kill()
	b.state, b.next = "stopping", []string{"stopped"}
	answer(w, 200, b.show(s))
	if b.autoDelete == 0 {
		s.discard(b)
	}
}

func (s *Server) archive(w http.ResponseWriter, _ *http.Request, b *box) {
	if b.state != "stopped" || b.autoDelete == 0 {
		problem(w, 400, "Sandbox is not in valid state")
		return
	}
	b.state, b.next = "archiving", []string{"archiving", "archived"}
	answer(w, 200, b.show(s))
}

func (s *Server) recover(w http.ResponseWriter, _ *http.Request, b *box) {
	if b.state != "error" || !b.repairable {
		problem(w, 400, "Sandbox is not in valid state")
		return
	}
	b.state, b.why, b.next = "stopped", "", nil
	answer(w, 200, b.show(s))
}

func (s *Server) destroy(w http.ResponseWriter, _ *http.Request, b *box) {
	shown := b.show(s)
	shown["desiredState"] = "destroyed"
	s.discard(b)
	answer(w, 200, shown)
}

func (s *Server) discard(b *box) {
	b.kill()
	delete(s.boxes, b.id)
	_ = os.RemoveAll(b.dir)
}

// Box is what a test sees of a sandbox, and Change of what it may alter.
type Box struct {
	ID, Name, State, Image, Region, Why string
	Labels                              map[string]string
	CPU, Memory, Disk                   int
	AutoStop, AutoDelete, AutoArchive   int // minutes
	TTL                                 int // minutes
	NoNetwork                           bool
	CIDRs, Domains                      string
	Home                                string
	Repairable                          bool
	Next                                []string
	Created                             time.Time
}

// Boxes returns all sandboxes, in the order in which they were made.
func (s *Server) Boxes() []Box {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Box
	for _, b := range s.boxes {
		all = append(all, Box{
			ID: b.id, Name: b.name, State: b.state, Image: b.image, Region: b.region, Why: b.why, Labels: b.labels, CPU: b.cpu, Memory: b.memory, Disk: b.disk,
			AutoStop: b.autoStop, AutoDelete: b.autoDelete, AutoArchive: b.archive, TTL: b.ttl, NoNetwork: b.noNetwork, CIDRs: b.cidrs, Domains: b.domains,
			Home: filepath.Join(b.dir, "home"), Repairable: b.repairable, Next: b.next, Created: b.created,
		})
	}
	slices.SortFunc(all, func(a, b Box) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// Put puts a sandbox into a state, as another client would; what comes next is for
// the looks after this. A sandbox that is put out of "started" ends all that runs.
func (s *Server) Put(id, state, why string, repairable bool, next ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxes[id]
	if state != "started" {
		b.kill()
	}
	b.state, b.why, b.repairable, b.next = state, why, repairable, next
}

// Remove deletes a sandbox, as another client would.
func (s *Server) Remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discard(s.boxes[id])
}

// Make makes a sandbox, as another client would.
func (s *Server) Make(name string, labels map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(&box{name: name, labels: labels, cpu: 1, memory: 1, disk: 3, state: "started"})
}

// add gives a sandbox its id and directory.
func (s *Server) add(b *box) {
	s.made++
	b.id = fmt.Sprintf("sb-%04d", s.made)
	b.dir, b.created, b.lag, b.terminals = filepath.Join(s.dir, b.id), time.Now(), s.o.Lag, map[string]*terminal{}
	_ = os.MkdirAll(filepath.Join(b.dir, "home"), 0o700)
	s.boxes[b.id] = b
}

// Age makes a sandbox older.
func (s *Server) Age(id string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boxes[id].created = s.boxes[id].created.Add(-d)
}

// Cut cuts the connections to the terminals of a sandbox, whose programs go on.
func (s *Server) Cut(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.boxes[id].terminals {
		t.cut()
	}
}

// kill ends the sandbox's terminals with all that runs on them, and what has left
// those but carries the sandbox's mark or is in its directory: with a real sandbox
// everything ends.
func (b *box) kill() {
	b.tmu.Lock()
	all := b.terminals
	b.terminals = map[string]*terminal{}
	b.tmu.Unlock()
	var roots []int
	for _, t := range all {
		roots = append(roots, t.cmd.Process.Pid)
	}
	sweep.End(sweep.Mark{Env: markVar + "=" + b.id + "@" + b.dir, Dir: b.dir}, roots...)
	for _, t := range all {
		<-t.ended
	}
}

// markVar marks the processes of a sandbox.
const markVar = "DAYTONA_SANDBOX_ID"
