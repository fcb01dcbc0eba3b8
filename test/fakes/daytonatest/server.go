package daytonatest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Key is the one that a Server takes.
const Key = "dtn_test"

// Options are what a Server is to be like. The zero value is the service of today.
type Options struct {
	// Wrap stands around all that the server does.
	Wrap func(http.Handler) http.Handler
	// Old has a daemon without upload-v2.
	Old bool
	// Creates and Requests are how many are allowed in a Window, 0 is any number.
	Creates, Requests int
	// Window is a minute when it is 0.
	Window time.Duration
	// Mute does not say when there may be more.
	Mute bool
	// Lag is how many lists a new sandbox is missing from.
	Lag int
	// NoNetworkRules forgets what may be reached.
	NoNetworkRules bool
	// Together is how many creates wait for each other, the first ones: they are
	// looked at when all have come.
	Together int
}

// Server is a Daytona.
type Server struct {
	URL string // of the API

	o    Options
	dir  string
	http *httptest.Server

	mu       sync.Mutex
	boxes    map[string]*box // by id
	kept     []*kept
	made     int
	faults   []*Fault
	requests []Request
	window   time.Time
	counts   map[string]int
	waiting  int           // creates that have not come yet
	together chan struct{} // closed when they have
}

// Request is one that was served.
type Request struct {
	Method, Path string
	Status       int
}

// Fault is something that goes wrong.
type Fault struct {
	Method string         // "" is any
	Path   *regexp.Regexp // of the URL, with its query
	Times  int            // how often; 0 is once
	Skip   int            // requests that are spared before
	Met    func()         // runs when it has come, and before any answer; nil is nothing
	Done   bool           // the request is served first, and only its answer is lost
	Drop   bool           // the connection is cut instead of an answer
	Status int
	Header map[string]string
	Body   string
}

// New starts a server whose sandboxes live in dir. Close ends it and all that runs
// in them.
func New(dir string, o Options) *Server {
	s := &Server{o: o, dir: dir, boxes: map[string]*box{}, counts: map[string]int{}, waiting: o.Together, together: make(chan struct{})}
	var h http.Handler = s.routes()
	if o.Wrap != nil {
		h = o.Wrap(h)
	}
	s.http = httptest.NewServer(s.gate(h))
	s.URL = s.http.URL + "/api"
	return s
}

// Close ends the server, its connections and everything that runs in sandboxes.
func (s *Server) Close() {
	s.mu.Lock()
	for _, b := range s.boxes {
		b.kill()
	}
	s.mu.Unlock()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Fail has something go wrong. Faults come in the order in which they were told.
func (s *Server) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// Heal has nothing more go wrong.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// Requests returns what was asked for since the last time, and forgets it.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests
	s.requests = nil
	return r
}

// gate counts requests, lets them go wrong, and asks for the key.
func (s *Server) gate(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w}
		defer func() {
			s.mu.Lock()
			s.requests = append(s.requests, Request{r.Method, r.URL.Path, rec.status})
			s.mu.Unlock()
		}()
		s.gather(r)
		if what, wait := s.limit(r); wait > 0 {
			if !s.o.Mute {
				w.Header().Set("Retry-After-"+what, strconv.Itoa(wait))
			}
			problem(rec, http.StatusTooManyRequests, "ThrottlerException: Too Many Requests")
			return
		}
		if f := s.fault(r); f != nil {
			if f.Done {
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			if f.Met != nil {
				f.Met()
			}
			if f.Status == 0 && !f.Drop {
				h.ServeHTTP(rec, r)
				return
			}
			if f.Drop {
				rec.status = -1
				panic(http.ErrAbortHandler)
			}
			for k, v := range f.Header {
				w.Header()[k] = []string{v} // as it is written
			}
			rec.WriteHeader(f.Status)
			_, _ = w.Write([]byte(f.Body))
			return
		}
		if r.Header.Get("Authorization") != "Bearer "+Key && r.URL.Path != "/api/config" {
			problem(rec, http.StatusUnauthorized, "Unauthorized")
			return
		}
		h.ServeHTTP(rec, r)
	})
}

// gather holds the first creates until all of them have come.
func (s *Server) gather(r *http.Request) {
	if !isCreate(r) {
		return
	}
	s.mu.Lock()
	one := s.waiting > 0
	if one {
		if s.waiting--; s.waiting == 0 {
			close(s.together)
		}
	}
	s.mu.Unlock()
	if one {
		select {
		case <-s.together:
		case <-r.Context().Done():
		}
	}
}

func isCreate(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == "/api/sandbox"
}

// limit returns of what there was too much, and the seconds until there may be more,
// or 0.
func (s *Server) limit(r *http.Request) (what string, wait int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	window := s.o.Window
	if window == 0 {
		window = time.Minute
	}
	if time.Since(s.window) > window {
		s.window = time.Now()
		clear(s.counts)
	}
	allowed := map[string]int{"authenticated": s.o.Requests}
	if isCreate(r) {
		allowed["sandbox-create"] = s.o.Creates
	}
	for kind, most := range allowed {
		if s.counts[kind]++; most > 0 && s.counts[kind] > most {
			what, wait = kind, int(time.Until(s.window.Add(window))/time.Second)+1
		}
	}
	return what, wait
}

func (s *Server) fault(r *http.Request) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.faults {
		if f.Method != "" && f.Method != r.Method || !f.Path.MatchString(r.URL.RequestURI()) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times--; f.Times <= 0 {
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
		}
		return f
	}
	return nil
}

type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets a connection be taken over.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

// problem answers as the service does.
func problem(w http.ResponseWriter, status int, format string, args ...any) {
	answer(w, status, map[string]any{
		"path": "", "timestamp": time.Now().UTC(), "statusCode": status, "error": http.StatusText(status), "message": fmt.Sprintf(format, args...),
	})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (s *Server) routes() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /api/api-keys/current", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"name": "test", "value": "dtn_***", "createdAt": time.Now(), "permissions": []string{"write:sandboxes", "delete:sandboxes"}, "lastUsedAt": nil, "expiresAt": nil, "userId": "u1"})
	})
	m.HandleFunc("GET /api/organizations/{org}/usage", s.usage)
	m.HandleFunc("POST /api/sandbox", s.create)
	m.HandleFunc("GET /api/sandbox", s.list)
	m.HandleFunc("GET /api/sandbox/{id}", s.withBox(func(w http.ResponseWriter, _ *http.Request, b *box) { b.move(); answer(w, 200, b.show(s)) }))
	m.HandleFunc("DELETE /api/sandbox/{id}", s.withBox(s.destroy))
	m.HandleFunc("POST /api/sandbox/{id}/start", s.withBox(s.start))
	m.HandleFunc("POST /api/sandbox/{id}/stop", s.withBox(s.stop))
	m.HandleFunc("POST /api/sandbox/{id}/snapshot", s.withBox(s.snapshot))
	m.HandleFunc("GET /api/snapshots", s.snapshots)
	m.HandleFunc("GET /api/snapshots/{id}", s.withKept(func(w http.ResponseWriter, k *kept) { k.move(); answer(w, 200, k.show()) }))
	m.HandleFunc("DELETE /api/snapshots/{id}", s.withKept(s.forget))
	m.HandleFunc("POST /api/snapshots/{id}/activate", s.withKept(s.activate))
	m.HandleFunc("POST /api/sandbox/{id}/recover", s.withBox(s.recover))
	m.HandleFunc("POST /api/sandbox/{id}/archive", s.withBox(s.archive))
	m.HandleFunc("PUT /api/sandbox/{id}/labels", s.withBox(func(w http.ResponseWriter, r *http.Request, b *box) {
		var c struct{ Labels map[string]string }
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			problem(w, 400, "%v", err)
			return
		}
		b.labels = c.Labels
		answer(w, 200, map[string]any{"labels": b.labels})
	}))
	m.HandleFunc("POST /api/sandbox/{id}/ttl/{minutes}", s.withBox(func(w http.ResponseWriter, r *http.Request, b *box) {
		b.ttl, _ = strconv.Atoi(r.PathValue("minutes"))
		answer(w, 200, b.show(s))
	}))
	m.HandleFunc("GET /api/sandbox/{id}/ports/{port}/preview-url", s.withBox(func(w http.ResponseWriter, r *http.Request, b *box) {
		answer(w, 200, map[string]any{"sandboxId": b.id, "url": "https://" + r.PathValue("port") + "-" + b.id + ".example.com", "token": "t"})
	}))
	s.toolbox(m)
	return m
}

// withBox finds a sandbox by its id or name. What f does, no other request does at the same time.
func (s *Server) withBox(f func(http.ResponseWriter, *http.Request, *box)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		b := s.find(r.PathValue("id"))
		if b == nil {
			problem(w, 404, "Sandbox with ID or name %s not found", r.PathValue("id"))
			return
		}
		f(w, r, b)
	}
}

func (s *Server) find(id string) *box {
	if b := s.boxes[id]; b != nil {
		return b
	}
	for _, b := range s.boxes {
		if b.name == id {
			return b
		}
	}
	return nil
}

func (s *Server) usage(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cpu := 0
	for _, b := range s.boxes {
		cpu += b.cpu
	}
	answer(w, 200, map[string]any{
		"totalSnapshotQuota": 10, "currentSnapshotUsage": 0, "totalVolumeQuota": 10, "currentVolumeUsage": 0,
		"regionUsage": []any{map[string]any{
			"regionId": "us", "sandboxClass": "container", "totalCpuQuota": 10, "currentCpuUsage": cpu, "totalMemoryQuota": 10, "currentMemoryUsage": 0,
			"totalDiskQuota": 30, "currentDiskUsage": 0, "totalGpuQuota": 0, "currentGpuUsage": 0, "maxCpuPerSandbox": 4, "maxMemoryPerSandbox": 8,
			"maxDiskPerSandbox": 10, "maxDiskPerNonEphemeralSandbox": 10, "maxCpuPerGpu": nil, "maxMemoryPerGpu": nil, "maxDiskPerGpu": nil,
		}},
	})
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	var c struct {
		Name, Target, Snapshot                                                string
		Labels                                                                map[string]string
		CPU, Memory, Disk                                                     int
		BuildInfo                                                             *struct{ DockerfileContent string }
		NetworkBlockAll                                                       bool
		NetworkAllowList, DomainAllowList                                     string
		AutoStopInterval, AutoArchiveInterval, AutoDeleteInterval, TTLMinutes *int
	}
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		problem(w, 400, "%v", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.Snapshot != "" && (c.CPU > 0 || c.Memory > 0 || c.Disk > 0 || c.BuildInfo != nil):
		problem(w, 400, "Cannot specify Sandbox resources when using a snapshot")
		return
	case c.CPU > 4 || c.Memory > 8 || c.Disk > 10:
		problem(w, 400, "CPU request %d exceeds maximum allowed per sandbox", c.CPU)
		return
	case c.Snapshot == "missing":
		problem(w, 404, "Snapshot missing not found")
		return
	case s.find(c.Name) != nil:
		problem(w, 409, "Sandbox with name %s already exists", c.Name)
		return
	}
	var from *kept
	if c.Snapshot != "" {
		if from = s.keptAs(c.Snapshot); from != nil && from.state != "active" {
			problem(w, 400, "Snapshot %s is %s", c.Snapshot, from.state)
			return
		}
	}
	b := &box{name: c.Name, labels: c.Labels, cpu: max(1, c.CPU), memory: max(1, c.Memory), disk: c.Disk, region: c.Target}
	if b.disk == 0 {
		b.disk = 3
	}
	if !s.o.NoNetworkRules {
		b.noNetwork, b.cidrs, b.domains = c.NetworkBlockAll, c.NetworkAllowList, c.DomainAllowList
	}
	for to, v := range map[*int]*int{&b.autoStop: c.AutoStopInterval, &b.autoDelete: c.AutoDeleteInterval, &b.archive: c.AutoArchiveInterval, &b.ttl: c.TTLMinutes} {
		if v != nil {
			*to = *v
		}
	}
	b.state = "started"
	if c.BuildInfo != nil {
		b.image = strings.TrimSpace(strings.TrimPrefix(c.BuildInfo.DockerfileContent, "FROM "))
		b.state, b.next = "pending_build", []string{"building_snapshot", "creating", "started"}
		if strings.Contains(b.image, "no-such-image") {
			b.next = []string{"building_snapshot", "build_failed"}
			b.why = "manifest unknown"
		}
	}
	s.add(b)
	if from != nil {
		if err := copyHome(from.dir, b.dir); err != nil {
			problem(w, 500, "%v", err)
			return
		}
	}
	answer(w, 200, b.show(s))
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	var labels map[string]string
	if l := r.URL.Query().Get("labels"); l != "" {
		if err := json.Unmarshal([]byte(l), &labels); err != nil {
			problem(w, 400, "labels: %v", err)
			return
		}
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	from := r.URL.Query().Get("cursor")
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	var next any
	for n := 1; n <= s.made; n++ {
		b := s.boxes[fmt.Sprintf("sb-%04d", n)]
		if b == nil || b.id <= from {
			continue
		}
		if b.lag > 0 {
			b.lag--
			continue
		}
		match := true
		for k, v := range labels {
			match = match && b.labels[k] == v
		}
		if !match {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = items[len(items)-1].(map[string]any)["id"]
			break
		}
		items = append(items, b.show(s))
	}
	answer(w, 200, map[string]any{"items": items, "nextCursor": next})
}
