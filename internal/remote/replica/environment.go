package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"berth/internal/sys/run"
	"berth/jobs"
)

// FarEnvs is the directory, below a state directory, of environments whose
// records are on other machines, by their ids.
const FarEnvs = "far"

// The scripts for what an environment has on a cluster. $1 is its directory.
const (
	// putFile writes standard input to the file $2. A link is made only once: of two
	// processes that write the same file, the second finds that of the first.
	putFile = `umask 077; mkdir -p "$1" && cd "$1" || exit 3; [ -e "$2" ] && exit 0; ` +
		`t=.new-$$; trap 'rm -f "$t"' EXIT; cat >"$t" && { ln "$t" "$2" 2>/dev/null || [ -e "$2" ]; }`
	// removeFile, of the file $3, and removeEnv want the record to be that of the id $2.
	removeFile = `[ -d "$1" ] || exit 0; grep -qs "\"$2\"" "$1/env.json" || exit 4; rm -f "$1/$3"`
	removeEnv  = `[ -d "$1" ] || exit 0; grep -qs "\"$2\"" "$1/env.json" || exit 4; chmod -R u+rwX "$1" 2>/dev/null; rm -rf "$1"`
)

// PutFiles writes files into a directory there, see held.Site.
func (s *Site) PutFiles(ctx context.Context, dir string, files map[string][]byte) error {
	for name, data := range files {
		if _, err := s.shell(ctx, data, putFile, dir, name); err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("write %s on %s", filepath.Join(dir, name), s), Err: err,
				Hint: "is there room? ssh " + s.String() + " df -h " + dir}
		}
	}
	return nil
}

// ReadFile reads a file there; the error of one that is not there is
// [fs.ErrNotExist].
func (s *Site) ReadFile(ctx context.Context, path string) ([]byte, error) {
	out, err := s.shell(ctx, nil, `[ -e "$1" ] || exit 4; head -c 1048576 "$1"`, path)
	var failed *run.Error
	if errors.As(err, &failed) && failed.Exit.Code == 4 {
		return nil, fmt.Errorf("%s on %s: %w", path, s, fs.ErrNotExist)
	}
	return out, err
}

// RemoveEnv removes the directory of an environment there, if its record is of
// this id.
func (s *Site) RemoveEnv(ctx context.Context, dir, id string) error {
	_, err := s.shell(ctx, nil, removeEnv, dir, id)
	return s.notRemoved(dir, err)
}

// RemoveFile removes a file of that directory on the same condition.
func (s *Site) RemoveFile(ctx context.Context, dir, id, name string) error {
	_, err := s.shell(ctx, nil, removeFile, dir, id, name)
	return s.notRemoved(filepath.Join(dir, name), err)
}

// notRemoved says what could not be removed, and why.
func (s *Site) notRemoved(path string, err error) error {
	var failed *run.Error
	if errors.As(err, &failed) {
		e := &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("remove %s on %s", path, s), Err: err}
		if failed.Exit.Code == 4 {
			e.Err = errors.New("it does not hold this environment's record")
		}
		return e
	}
	return err
}

// Local is the command of this machine that runs one there, with the
// environment of a login there.
func (s *Site) Local(ctx context.Context, c jobs.Cmd) (jobs.Cmd, error) {
	if err := s.connect(ctx); err != nil {
		return jobs.Cmd{}, err
	}
	return s.c.Host.Local(c)
}

// shell runs a script of berth on the cluster, and returns what it prints.
func (s *Site) shell(ctx context.Context, stdin []byte, script string, args ...string) ([]byte, error) {
	ctx, stop := context.WithTimeoutCause(ctx, shortTime, fmt.Errorf("%s has not answered after %v", s, shortTime))
	defer stop()
	c := jobs.Cmd{Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...)}
	if stdin != nil {
		c.Stdin = bytes.NewReader(stdin)
	}
	out, err := run.Output(ctx, s, c)
	var failed *run.Error
	if errors.As(err, &failed) {
		failed.Argv = []string{"a shell on", s.String()} // the text of the script would not explain the error
	}
	return out, err
}
