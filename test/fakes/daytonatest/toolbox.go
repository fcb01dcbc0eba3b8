package daytonatest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func (s *Server) toolbox(m *http.ServeMux) {
	m.HandleFunc("POST /toolbox/{id}/process/execute", s.inBox(execute))
	m.HandleFunc("POST /toolbox/{id}/files/upload-v2", s.inBox(func(w http.ResponseWriter, r *http.Request, b *box) {
		if s.o.Old {
			http.NotFound(w, r)
			return
		}
		path := r.URL.Query().Get("path")
		if _, err := write(path, r.Body); err != nil {
			daemonProblem(w, 400, "INVALID_REQUEST_BODY", err.Error())
			return
		}
		answer(w, 200, map[string]any{"name": filepath.Base(path), "path": path, "type": "file"})
	}))
	m.HandleFunc("POST /toolbox/{id}/files/bulk-upload", s.inBox(bulkUpload))
	m.HandleFunc("POST /toolbox/{id}/process/pty", s.inBox(createTerminal))
	m.HandleFunc("DELETE /toolbox/{id}/process/pty/{terminal}", s.inBox(deleteTerminal))
	m.HandleFunc("GET /toolbox/{id}/process/pty/{terminal}/connect", s.inBox(connectTerminal))
}

// inBox is for a sandbox that runs; not under the server's lock.
func (s *Server) inBox(f func(http.ResponseWriter, *http.Request, *box)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		b := s.boxes[r.PathValue("id")]
		runs := b != nil && b.state == "started"
		s.mu.Unlock()
		switch {
		case b == nil:
			problem(w, 404, "Sandbox not found")
		case !runs:
			problem(w, 400, "bad request: failed to resolve container IP after 3 attempts. Is the Sandbox started?")
		default:
			f(w, r, b)
		}
	}
}

func daemonProblem(w http.ResponseWriter, status int, code, message string) {
	answer(w, status, map[string]any{"statusCode": status, "message": message, "code": code, "source": "DAYTONA_DAEMON", "timestamp": time.Now().UTC(), "path": ""})
}

// environment is that of everything in a sandbox: made from nothing.
func (b *box) environment() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + filepath.Join(b.dir, "home"), "LANG=C.UTF-8", markVar + "=" + b.id + "@" + b.dir}
}

// execute feeds the command to a shell's input, as the daemon does.
func execute(w http.ResponseWriter, r *http.Request, b *box) {
	var q struct {
		Command, Cwd string
		Envs         map[string]string
		Timeout      int
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Command == "" {
		daemonProblem(w, 400, "INVALID_REQUEST_BODY", "command is required")
		return
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(r.Context())) // the client's end does not end it
	defer stop()
	if q.Timeout > 0 {
		ctx, stop = context.WithTimeout(ctx, time.Duration(q.Timeout)*time.Second)
		defer stop()
	}
	cmd := exec.CommandContext(ctx, "sh")
	cmd.Dir, cmd.Env, cmd.Stdin = filepath.Join(b.dir, "home"), b.environment(), strings.NewReader(q.Command)
	for k, v := range q.Envs {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		daemonProblem(w, 408, "PROCESS_EXECUTION_TIMEOUT", "command execution timeout")
		return
	}
	code := 0
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		code = ended.ExitCode()
	} else if err != nil {
		code = -1
	}
	answer(w, 200, map[string]any{"exitCode": code, "result": string(out)})
}

// write writes a file, which may be executed next. Another process does it: this
// one's children would have it open, too, until they have become what they are to
// be, and then no process can execute it.
func write(path string, r io.Reader) (int64, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return 0, err
	}
	cmd := exec.Command("sh", "-c", `cat >"$1"`, "sh", path)
	in := &counted{r: r}
	cmd.Stdin = in
	err := cmd.Run()
	return in.n, errors.Join(err, in.err)
}

// counted counts what is read, and keeps the error that ends it early.
type counted struct {
	r   io.Reader
	n   int64
	err error
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.n += int64(n); err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

func bulkUpload(w http.ResponseWriter, r *http.Request, _ *box) {
	form, err := r.MultipartReader()
	if err != nil {
		daemonProblem(w, 400, "INVALID_REQUEST_BODY", err.Error())
		return
	}
	paths := map[string]string{}
	done := []any{}
	for {
		var p *multipart.Part
		if p, err = form.NextPart(); err != nil {
			break
		}
		name, isPath := strings.CutSuffix(p.FormName(), ".path")
		if isPath {
			b, _ := io.ReadAll(io.LimitReader(p, 4096))
			paths[name] = string(b)
			continue
		}
		to := paths[strings.TrimSuffix(p.FormName(), ".file")]
		if to == "" {
			err = errors.New("a file before its path")
			break
		}
		n, werr := write(to, p)
		if err = werr; err != nil {
			break
		}
		done = append(done, map[string]any{"path": to, "bytes": n})
	}
	if !errors.Is(err, io.EOF) {
		answer(w, 400, map[string]any{"errors": []string{err.Error()}, "files": done})
		return
	}
	answer(w, 200, map[string]any{"files": done})
}
