package images

import (
	"io"
	"os"
	"path/filepath"

	"berth/jobs"
)

// confine are the flags that put d.Shell over the shell of the base image, and an
// empty directory over the scripts of the base that the container program would
// read before it. The shell uncovers both and confines what it runs.
func (d *Definition) confine(dir string) (flags []string, err error) {
	shell, env := filepath.Join(dir, "sh"), filepath.Join(dir, "env")
	if err := copyProgram(d.Shell, shell); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(env, 0o755); err != nil { //nolint:gosec // other users inside look into it
		return nil, err
	}
	return []string{"--bind", shell + ":" + jobs.BuildShell, "--bind", env + ":" + jobs.BuildEnv}, nil
}

func copyProgram(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755) //nolint:gosec // a program
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
