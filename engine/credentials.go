package engine

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"berth/internal/network/credentials"
	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"
)

// settleCredentials refuses credentials that could be seen, and caps that could not be
// measured. Their keys are read when the job is submitted.
func settleCredentials(s *jobs.Spec) error {
	if err := s.Caps.Measurable(s.Credentials, s.Prices, s.Agent); err != nil || len(s.Credentials) == 0 {
		return err
	}
	if !s.Can().Here() {
		return absent("credentials, which nothing would keep from the task", &s.Place)
	}
	if s.Resources.Tasks > 1 {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "credentials are not available with ntasks above 1", Hint: "leave one of them out"}
	}
	if s.Network.Settled().Mode == jobs.NetworkNone {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: `credentials need a network, and its mode is "none"`,
			Hint: `with mode = "allow" and no names only the servers of the credentials are reached`}
	}
	for i, c := range s.Credentials {
		if part, err := credentials.Check(c); err != nil {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("credential %s: %s", c.Name, part), Err: err}
		}
		for _, name := range slices.Concat(c.KeyEnv, c.BaseURLEnv) {
			has := func(kv string) bool { n, _, _ := strings.Cut(kv, "="); return n == name }
			if slices.ContainsFunc(s.Env, has) || slices.ContainsFunc(s.EnvNames, has) {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the task is given %s, which the credential %s sets", name, c.Name),
					Hint: "leave one of them out: with the variable the task would have a key of its own"}
			}
			for _, o := range s.Credentials[:i] {
				if slices.Contains(o.KeyEnv, name) || slices.Contains(o.BaseURLEnv, name) {
					return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the credentials %s and %s both set %s", o.Name, c.Name, name),
						Hint: "give one of them other names: base_url_env and key_env in the configuration"}
				}
			}
		}
	}
	return nil
}

// credentialKeys are the keys of a job's credentials as they travel with the passed
// values. The task has what the configuration says of their places.
func (e *Engine) credentialKeys(ctx context.Context, s *jobs.Spec, t jobs.Task) (out []string, err error) {
	for _, c := range s.Credentials {
		i := slices.IndexFunc(t.Credentials, func(o jobs.Credential) bool { return o.Name == c.Name })
		if i >= 0 {
			c.From = cmp.Or(c.From, t.Credentials[i].From)
		}
		key, err := e.keyOf(ctx, c)
		if err == nil {
			err = credentials.CheckKey(key)
		}
		if err != nil {
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the key of the credential " + c.Name + " (" + from(c) + ")", Err: err, Hint: jobs.HintOf(err)}
		}
		out = append(out, credentials.Variable(c.Name)+"="+key)
	}
	return out, nil
}

// from is where a key is, for errors. A command's words are left out.
func from(c jobs.Credential) string {
	kind, rest, _ := strings.Cut(c.From, ":")
	if kind == "env" || kind == "file" {
		return kind + " " + rest
	}
	return "of a command"
}

// commandTime is how long a program may take to give a key: a person may have to
// unlock something.
const commandTime = 2 * time.Minute

func (e *Engine) keyOf(ctx context.Context, c jobs.Credential) (string, error) {
	kind, rest, _ := strings.Cut(c.From, ":")
	switch kind {
	case "env":
		v, ok := e.Getenv(rest)
		if !ok || v == "" {
			return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "it is not set", Hint: "export " + rest + "=..."}
		}
		return v, nil
	case "file":
		return keyFile(rest)
	case "command":
		ctx, cancel := context.WithTimeout(ctx, commandTime)
		defer cancel()
		out, err := run.Output(ctx, run.Local{}, jobs.Cmd{Argv: []string{"/bin/sh", "-c", rest}, Stderr: os.Stderr})
		if err != nil {
			return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "it gave none", Hint: "try it in a shell: what it prints is the key, and its first line alone"}
		}
		line, _, _ := strings.Cut(string(out), "\n")
		return strings.TrimSpace(line), nil
	}
	return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "its place is not known", Hint: "submit the task again"}
}

// keyFile reads a key from a file that its owner alone may read.
func keyFile(path string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		path = filepath.Join(home, rest)
	}
	f, err := disk.OpenRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); fi.Mode().Perm()&0o077 != 0 || !ok || int(st.Uid) != os.Getuid() && st.Uid != 0 {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "others may read it", Hint: "chmod 600 " + path}
	}
	b, err := io.ReadAll(io.LimitReader(f, 16<<10))
	return strings.TrimSpace(string(b)), err
}
