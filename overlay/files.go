package overlay

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"berth/internal/sys/run"
	"berth/jobs"
)

// VerbFiles is the verb of berth-node that reads and writes the files of
// layers as root of a user namespace: what containers have left need not be
// readable by this user outside of one.
const VerbFiles = "overlay-files"

// What the verb does: its first argument.
const (
	filesList   = "list"   // DRIVER LAYER: the entries, as gob
	filesTar    = "tar"    // DRIVER LAYER: a tar, as [Set.Export] writes it, without the global header
	filesUnpack = "unpack" // DIR HOW: takes a tar, gives an [unpacked]
)

// FilesMain is the verb [VerbFiles].
func FilesMain(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	err := files(args, stdin, stdout)
	if err == nil {
		return jobs.CodeOK
	}
	// The last line is for the caller.
	_ = json.NewEncoder(stderr).Encode(filesError{jobs.KindOf(err), err.Error(), jobs.HintOf(err), errors.Is(err, fs.ErrPermission)})
	return jobs.CodeOf(err)
}

type filesError struct {
	Kind   jobs.Kind
	Msg    string
	Hint   string
	Denied bool
}

func files(args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 3 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "usage: " + VerbFiles + " list|tar DRIVER LAYER, or unpack DIR HOW"}
	}
	ctx := context.Background() // whoever started this kills it
	switch args[0] {
	case filesList:
		t, err := readTree(ctx, args[1], args[2])
		if err != nil {
			return err
		}
		return t.write(stdout)
	case filesTar:
		return writeTar(ctx, args[1], args[2], stdout, func(int64) {})
	case filesUnpack:
		u, err := unpackTar(ctx, stdin, args[1], args[2])
		if err != nil {
			return err
		}
		return json.NewEncoder(stdout).Encode(u)
	}
	return &jobs.Error{Kind: jobs.KindUsage, Msg: "there is no " + VerbFiles + " " + args[0]}
}

// inside runs the verb as root of a user namespace.
func (s *Set) inside(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	var said bytes.Buffer
	p, err := s.On.Start(ctx, jobs.Cmd{
		Argv:     append([]string{"/proc/self/exe", VerbFiles}, args...),
		Dir:      "/",
		Stdin:    stdin,
		Stdout:   stdout,
		Stderr:   &said,
		OwnFiles: true,
	})
	if err != nil {
		return err
	}
	exit, err := p.Wait()
	if err != nil {
		return err
	}
	if exit.OK() {
		return nil
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	text := strings.TrimSpace(said.String())
	line := text[strings.LastIndexByte(text, '\n')+1:]
	var e filesError
	if json.Unmarshal([]byte(line), &e) != nil {
		return fmt.Errorf("%s: %s: %s", VerbFiles, exit, line)
	}
	out := &jobs.Error{Kind: e.Kind, Msg: e.Msg, Hint: e.Hint}
	if e.Denied {
		out.Err = fs.ErrPermission
	}
	return out
}

// readTree reads a layer, in a user namespace where that is needed.
func (s *Set) readTree(ctx context.Context, driver, layer string) (tree, error) {
	t, err := readTree(ctx, driver, layer)
	if !errors.Is(err, fs.ErrPermission) || os.Geteuid() == 0 {
		return t, err
	}
	can, _, why := run.OwnFiles(ctx)
	if !can {
		return t, denied(err, why)
	}
	t.inside = true
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := s.inside(ctx, nil, w, filesList, driver, layer)
		_ = w.CloseWithError(errors.Join(err, io.EOF))
		done <- err
	}()
	rerr := t.read(r)
	_ = r.Close()
	if err := <-done; err != nil {
		_, all, why := run.OwnFiles(ctx)
		if errors.Is(err, fs.ErrPermission) && !all {
			return t, denied(err, why)
		}
		return t, err
	}
	return t, rerr
}

// denied is the error for files that need a user namespace where none is
// available.
func denied(err error, why string) error {
	return &jobs.Error{Kind: jobs.KindConfig, Err: fmt.Errorf("%w (%s)", err, why),
		Hint: "files of ids of --fakeroot, and files without read permission, need user namespaces, " +
			"newuidmap (package uidmap, or shadow-utils) and ids of yours in /etc/subuid: ask the administrators, or do it on another machine"}
}

// wireEntry is an [entry] on its way from a user namespace.
type wireEntry struct {
	Path            string
	Mode            uint32
	UID, GID        int
	Size, Mtime     int64
	Rdev, Ino, Link uint64
	To              string
	Whiteout        bool
	Opaque          bool
	By              string
}

func (t *tree) write(w io.Writer) error {
	enc := gob.NewEncoder(w)
	if err := enc.Encode(len(t.list)); err != nil {
		return err
	}
	for _, e := range t.list {
		w := wireEntry{e.path, e.mode, e.uid, e.gid, e.size, e.mtime, e.rdev, e.ino, e.nlink, e.link, e.whiteout, e.opaque, e.opaqueBy}
		if err := enc.Encode(w); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) read(r io.Reader) error {
	t.list, t.at = nil, map[string]*entry{}
	dec := gob.NewDecoder(r)
	var n int
	if err := dec.Decode(&n); err != nil {
		return err
	}
	for range n {
		var e wireEntry
		if err := dec.Decode(&e); err != nil {
			return err
		}
		t.add(&entry{e.Path, e.Mode, e.UID, e.GID, e.Size, e.Mtime, e.Rdev, e.Ino, e.Link, e.To, e.Whiteout, e.Opaque, e.By})
	}
	return nil
}
