package ssh

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"

	"berth/internal/node/keeper"
	"berth/internal/sys/run"
	"berth/jobs"
)

// envDir is where an environment's directory stands, below the home there.
const envDir = ".local/state/berth/ssh/"

// connect is the far side of Dial. $1 is the program, $2 a random word,
// $3 the environment's directory, the rest goes to the program.
const connect = `umask 077; p=$HOME/.local/state/berth/bin/$1; n=$2; d=$HOME/$3; shift 3; ` +
	`[ -f "$p" ] || { echo "$n missing" >&2; exit 127; }; exec "$p" connect --env "$d" "$@"`

// Dial reaches the keeper of an environment on its host, and starts it there
// unless o.NoStart is set, in one execution over the connection. When berth's
// program turns out to be missing there, it is put in place first. The stream
// is the keeper's; ctx bounds the dialling alone.
func (b Backend) Dial(ctx context.Context, s *jobs.EnvSpec, o keeper.OpenOptions) (io.ReadWriteCloser, *keeper.Report, error) {
	if s.SSH == nil || !jobs.ValidID(s.ID) {
		return nil, nil, &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the environment %q names no host of ssh", s.Name)}
	}
	h, err := b.Host(*s.SSH)
	if err != nil {
		return nil, nil, err
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Wait > 0 {
		var stop func()
		ctx, stop = context.WithTimeoutCause(ctx, o.Wait, fmt.Errorf("the environment %s on %s was not open after %v", s.Name, h, o.Wait))
		defer stop()
	}
	return h.dial(ctx, s, o)
}

// Far is the command that joins many conversations with the keeper of an environment
// to its standard input and output. It rides on the connection that stands, and on no
// other: where the server takes no more sessions on that, it ends.
func (b Backend) Far(ctx context.Context, s *jobs.EnvSpec) (jobs.Cmd, error) {
	h, err := b.Host(*s.SSH)
	if err != nil {
		return jobs.Cmd{}, err
	}
	name, err := h.Install(ctx, false, func(string) {})
	if err != nil {
		return jobs.Cmd{}, err
	}
	argv := append(h.args(true), "-oProxyCommand=false", "--", h.spec.Host, viaSh(connect, name, "berth-"+rand.Text(), envDir+s.ID, "--mux"))
	return jobs.Cmd{Argv: argv, Env: h.b.Env}, nil
}

func (h *Host) dial(ctx context.Context, s *jobs.EnvSpec, o keeper.OpenOptions) (io.ReadWriteCloser, *keeper.Report, error) {
	if err := makePrivate(h.control); err != nil {
		return nil, nil, err
	}
	for ask := false; ; ask = true {
		if err := context.Cause(ctx); err != nil {
			return nil, nil, fmt.Errorf("connect to %s: %w", h, err)
		}
		name, err := h.Install(ctx, ask, o.Progress)
		if err != nil {
			return nil, nil, err
		}
		st, rep, err := h.connect(ctx, name, s, o)
		if !errors.Is(err, errNoProgram) {
			if err != nil {
				return nil, nil, err
			}
			return st, rep, nil
		}
		if ask {
			return nil, nil, &jobs.Error{Kind: jobs.KindInfra,
				Msg: fmt.Sprintf("berth's program was put on %s and cannot be started there", h), Err: err,
				Hint: byHand(h.spec) + " 'ls -l ~/" + binDir + "'"}
		}
	}
}

// errNoProgram says that the program is not there, or is another machine's.
var errNoProgram = errors.New("there is no program that runs")

// connect starts the far side and waits until it has reached the keeper.
func (h *Host) connect(ctx context.Context, name string, s *jobs.EnvSpec, o keeper.OpenOptions) (*stream, *keeper.Report, error) {
	word := "berth-" + rand.Text()
	words := []string{name, word, envDir + s.ID}
	if o.NoStart {
		words = append(words, "--no-start")
	} else {
		words = append(words, "--make")
	}
	st, err := h.open(ctx, viaSh(connect, words...), word, o.Progress)
	if err != nil {
		return nil, nil, err
	}
	if !o.NoStart {
		// Read by the far side before it says that it is ready; a link that
		// breaks is seen below.
		go func() { _ = keeper.WriteSpec(st.far.In, s) }()
	}
	select {
	case rep := <-st.reports.last:
		if err := rep.Err(); err != nil {
			_ = st.Close()
			return nil, nil, err
		}
		return st, &rep, nil
	case <-st.far.Ended:
		defer func() { _ = st.Close() }()
		select { // both may be ready
		case rep := <-st.reports.last:
			if err := rep.Err(); err != nil {
				return nil, nil, err
			}
		default:
		}
		return nil, nil, h.noStream(ctx, st)
	case <-ctx.Done():
		_ = st.Close()
		return nil, nil, fmt.Errorf("connect to %s: %w", h, context.Cause(ctx))
	}
}

// noStream says why the far side ended before it had reached the keeper.
func (h *Host) noStream(ctx context.Context, st *stream) error {
	said := st.reports.rest()
	switch {
	case st.far.Err != nil:
		return st.far.Err
	case st.reports.missing() || st.far.Exit.Code == 126, st.far.Exit.Code == failed && strings.TrimSpace(said) == "":
		// The last is a program that a signal ended, as it does a damaged one:
		// of its own failures ssh has something to say.
		return errNoProgram
	case st.far.Exit.Code == failed || st.far.Exit.Signal != 0:
		return h.explain(ctx, said)
	}
	return h.notOurs(st.far.Exit, said)
}

// open starts ssh with a stream to what the login shell is told to run.
func (h *Host) open(ctx context.Context, line, word string, progress func(string)) (*stream, error) {
	st := &stream{h: h, reports: newReports(word, progress)}
	var err error
	st.far, err = run.StartPiped(ctx, h.b.On, jobs.Cmd{Argv: h.call(true, line), Env: h.b.Env, Stderr: st.reports}, false)
	if err != nil {
		return nil, h.startFailed(err)
	}
	return st, nil
}
