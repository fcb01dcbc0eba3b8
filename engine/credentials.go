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
	"sync"
	"syscall"
	"time"

	"berth/internal/link/wire"
	"berth/internal/network/credentials"
	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"
)

// settleCredentials refuses credentials that could be seen, and caps that could not be
// measured. Their keys are read when the job is submitted.
func settleCredentials(s *jobs.Spec) error { return settleKeys(&s.Place, s.EnvNames, s.Agent) }

// checkLent refuses credentials of an environment that has no keeper to hold them, or one
// that cannot hold all caps. The site's are among these.
func checkLent(s *jobs.EnvSpec) error {
	if len(s.Credentials) > 0 && !s.Can().Here() {
		return absent("credentials, which nothing would keep from commands", &s.Place)
	}
	if name := s.Caps.OfCommand(); name != "" {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "credentials are not available in an environment where the site sets " + name + ", which holds one command",
			Hint: "let a job use them: berth submit --credential NAME -- COMMAND"}
	}
	return nil
}

// settleKeys settles the credentials of a place, to whose commands variables of these names
// are passed.
func settleKeys(p *jobs.Place, passed []string, agent *jobs.Agent) error {
	if err := p.Caps.Measurable(p.Credentials, p.Prices, agent); err != nil || len(p.Credentials) == 0 {
		return err
	}
	if !p.Can().Here() {
		return absent("credentials, which nothing would keep from the task", p)
	}
	if p.Resources.Tasks > 1 {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "credentials are not available with ntasks above 1", Hint: "leave one of them out"}
	}
	if p.Network.Settled().Mode == jobs.NetworkNone {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: `credentials need a network, and its mode is "none"`,
			Hint: `with mode = "allow" and no names only the servers of the credentials are reached`}
	}
	for i, c := range p.Credentials {
		if part, err := credentials.Check(c); err != nil {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("credential %s: %s", c.Name, part), Err: err}
		}
		for _, name := range slices.Concat(c.KeyEnv, c.BaseURLEnv) {
			has := func(kv string) bool { n, _, _ := strings.Cut(kv, "="); return n == name }
			if slices.ContainsFunc(p.Env, has) || slices.ContainsFunc(passed, has) {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the task is given %s, which the credential %s sets", name, c.Name),
					Hint: "leave one of them out: with the variable the task would have a key of its own"}
			}
			for _, o := range p.Credentials[:i] {
				if slices.Contains(o.KeyEnv, name) || slices.Contains(o.BaseURLEnv, name) {
					return &jobs.Error{Kind: jobs.KindConfig,
						Msg:  fmt.Sprintf("the credentials %s and %s both set %s", o.Name, c.Name, name),
						Hint: "give one of them other names: base_url_env and key_env in the configuration"}
				}
			}
		}
	}
	return nil
}

// credentialKeys are the keys of a place's credentials as they travel with the passed
// values. have is what the configuration says of their places.
func (e *Engine) credentialKeys(ctx context.Context, list, have []jobs.Credential) (out []string, err error) {
	for _, c := range list {
		i := slices.IndexFunc(have, func(o jobs.Credential) bool { return o.Name == c.Name })
		if i >= 0 {
			c.From = cmp.Or(c.From, have[i].From)
		}
		key, err := e.keyOf(ctx, c)
		if err == nil {
			err = credentials.CheckKey(key)
		}
		if err != nil {
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the key of the credential " + c.Name + " (" + from(c) + ")", Err: err,
				Hint: jobs.HintOf(err)}
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

// SweepValues are the values that a sweep's tasks need and that are in no record, as they
// travel: of variables by these names, and the keys of a place's credentials.
func (e *Engine) SweepValues(ctx context.Context, names []string, list []jobs.Credential) (out []string, err error) {
	for _, name := range names {
		v, ok := e.Getenv(name)
		if !ok {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the sweep takes " + name + " from your environment, where it is not set",
				Hint: "export " + name + "=..."}
		}
		out = append(out, name+"="+v)
	}
	keys, err := e.credentialKeys(ctx, list, e.lendable())
	return append(out, keys...), err
}

// lendable are the credentials of the configuration.
func (e *Engine) lendable() []jobs.Credential {
	if e.credentials == nil {
		return nil
	}
	return e.credentials()
}

// lentKeys reads keys, see [keeper.OpenOptions].
type lentKeys func(context.Context) ([]byte, error)

// lentKeys returns what reads the keys of an environment's credentials, as a keeper takes
// them: once, when it is first asked. It is nil where there are none.
func (v *Environment) lentKeys(ctx context.Context) lentKeys {
	if len(v.Spec.Credentials) == 0 {
		return nil
	}
	read := sync.OnceValues(func() ([]byte, error) {
		keys, err := v.e.credentialKeys(ctx, v.Spec.Credentials, v.e.lendable())
		if err != nil {
			return nil, err
		}
		return []byte(strings.Join(keys, "\x00") + "\x00"), nil
	})
	return func(context.Context) ([]byte, error) { return read() }
}

// handKeys gives the keys to a keeper that waits for them: the scheduler has started it in
// its allocation, and knows none. They go over the conversation, as what commands are given
// does. Who starts nothing hands none over. The caller holds v.mu.
func (v *Environment) handKeys(ctx context.Context, noStart bool, keys lentKeys) error {
	if noStart || !v.owed {
		return nil
	}
	if keys == nil {
		return &jobs.Error{Kind: jobs.KindInfra,
			Msg:  "the keeper of the environment " + v.Spec.Name + " waits for keys, and its record has no credentials",
			Hint: "berth env show " + v.Spec.Name}
	}
	b, err := keys(ctx)
	if err != nil {
		return err
	}
	res, err := askKeeper(ctx, v.link, wire.KeepRequest{Op: wire.KeepKeys, Keys: b}, nil, nil)
	if err == nil {
		_, err = v.said(res)
	}
	v.owed = err != nil
	return err
}

// sameCredentials refuses credentials that an environment was made without.
func sameCredentials(s *jobs.EnvSpec, wants []jobs.Credential) error {
	names := func(list []jobs.Credential) string {
		return strings.Join(slices.Sorted(slices.Values(jobs.CredentialNames(list))), " ")
	}
	if has, wanted := names(s.Credentials), names(wants); wanted != "" && has != wanted {
		return differs(s, "other credentials: "+none(has)+", not "+wanted)
	}
	return nil
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
			return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "it gave none",
				Hint: "try it in a shell: what it prints is the key, and its first line alone"}
		}
		line, _, _ := strings.Cut(string(out), "\n")
		return strings.TrimSpace(line), nil
	}
	return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "the configuration does not say where it is",
		Hint: "add [credentials.NAME] with from = ... to it (berth config)"}
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
