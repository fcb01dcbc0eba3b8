package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"berth/internal/sys/run"
	"berth/jobs"
)

// pinned begins the id of an image, which no registry knows.
const pinned = "sha256:"

// Fetch implements [jobs.Fetcher]: the name is the image's id.
func (b *Backend) Fetch(ctx context.Context, image string, offline bool) (string, error) {
	p, err := find(b.On, "")
	if err != nil {
		return "", err
	}
	c, err := p.probe(ctx)
	if err != nil {
		return "", err
	}
	image = qualified(image, c.podman)
	if !offline {
		if err := p.ensureImage(ctx, image, func(string) {}); err != nil {
			return "", err
		}
	}
	id, err := p.imageID(ctx, image)
	if err != nil && absent(err) {
		return "", &jobs.Error{Kind: jobs.KindNotFound, Msg: "the image " + image + " is not here, and none is to be pulled",
			Hint: p.path + " pull " + image}
	}
	if err != nil {
		return "", err
	}
	return pinned + strings.TrimPrefix(id, pinned), nil // podman prints the number alone
}

// imageID is the id of an image that is here.
func (p *program) imageID(ctx context.Context, image string) (string, error) {
	out, err := p.ask(ctx, askLimit, "image", "inspect", "--format", "{{.Id}}", image)
	return strings.TrimSpace(out), err
}

// ensureImage pulls an image that is not there. A pull may take as long as it
// takes; ctx ends it.
func (p *program) ensureImage(ctx context.Context, image string, progress func(string)) error {
	_, err := p.imageID(ctx, image)
	if err == nil || !absent(err) {
		return err
	}
	if strings.HasPrefix(image, pinned) {
		return &jobs.Error{Kind: jobs.KindNotFound, Msg: "the image " + image + " is not here any more, and its id names none of a registry",
			Hint: "submit the task again that named it: its image is pulled again then"}
	}
	progress("pulling the image " + image)
	// The program's own output is a line for each step of each layer.
	w := &lines{each: func(l string) { progress(image + ": " + l) }}
	proc, err := p.on.Start(ctx, jobs.Cmd{Argv: []string{p.path, "pull", image}, Dir: "/", Env: p.env, Stdout: w, Stderr: w})
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "pull the image " + image, Err: err}
	}
	exit, err := proc.Wait()
	w.flush()
	switch {
	case err != nil:
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "pull the image " + image, Err: err}
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !exit.OK():
		return pullError(image, said(&run.Error{Argv: []string{p.path, "pull"}, Exit: exit, Stderr: w.last}))
	}
	return nil
}

// pullError says why an image could not be pulled.
func pullError(image, text string) error {
	registry, _, deep := strings.Cut(image, "/")
	if !deep || !strings.ContainsAny(registry, ".:") {
		registry = ""
	}
	e := &jobs.Error{Kind: jobs.KindInfra, Msg: "pull the image " + image, Err: errors.New(text), Hint: "try it by hand: docker pull " + image}
	low := strings.ToLower(text)
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(low, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("toomanyrequests", "rate limit"):
		e.Kind, e.Hint = jobs.KindAgain, "the registry limits pulls; wait, or docker login"
	case has("no matching manifest"):
		e.Kind, e.Hint = jobs.KindConfig, "the image has no variant for this machine's processor"
	case has("manifest unknown", "manifest for", "name unknown", "repository name not known"), has("not found") && !has("lookup", "executable"):
		e.Kind, e.Hint = jobs.KindNotFound, "is the name right, with its tag?"
	case has("unauthorized", "denied", "no basic auth", "authentication required", "forbidden"):
		e.Kind, e.Hint = jobs.KindAuth, strings.TrimSpace("is the name right? if it is private: docker login "+registry)
	case has("invalid reference format"):
		e.Kind, e.Hint = jobs.KindUsage, "write for example debian:12"
	case has("no space left"):
		e.Hint = "see what takes the space: docker system df"
	case has("dial tcp", "no such host", "timeout", "connection refused", "connection reset", "network is unreachable",
		"eof", "proxyconnect", "server misbehaving"):
		e.Kind, e.Hint = jobs.KindAgain, "the registry cannot be reached from the daemon; without a network: docker load <image.tar"
	}
	return e
}

// lines cuts what is written into lines, keeps the last that is not empty, and
// passes each on without what a terminal would obey.
type lines struct {
	each func(string)
	buf  []byte
	last string
}

func (l *lines) Write(b []byte) (int, error) {
	l.buf = append(l.buf, b...)
	for {
		i := strings.IndexAny(string(l.buf), "\r\n")
		if i < 0 {
			break
		}
		l.line(string(l.buf[:i]))
		l.buf = l.buf[i+1:]
	}
	if len(l.buf) > 4096 {
		l.flush()
	}
	return len(b), nil
}

func (l *lines) flush() {
	l.line(string(l.buf))
	l.buf = nil
}

func (l *lines) line(s string) {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "?"))
	if s == "" {
		return
	}
	l.last = s
	if jobs.CheckText("", s) != nil {
		s = fmt.Sprintf("%q", s)
	}
	l.each(s)
}
