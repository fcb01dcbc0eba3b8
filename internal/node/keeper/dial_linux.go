package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	program "berth/apptainer/names"
	"berth/internal/link/wire"
	"berth/internal/node/batch"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/internal/sys/socket"
	"berth/jobs"
	"berth/jobs/store"
)

// Times of a client.
const (
	defaultWait = 30 * time.Minute
	answerWait  = 20 * time.Second // for a keeper that listens
)

// What a keeper says to a client at once. A client that has read sayReady or
// saySecret is counted: the keeper does not end before its first request.
const (
	sayEnding = "ending"
	saySecret = "secret" // it is ready, and the client is to say [Info].Secret
	sayReady  = "ready"  // of keepers from before there was one
)

func greeting(word string) string { return fmt.Sprintf("berth-keeper %d %s\n", wire.Version, word) }

// errEnded says that there is no keeper, or that it is just ending: another one
// may be started, and nothing of the caller's has run.
var errEnded = errors.New("the keeper has ended")

// Open reaches the keeper of the environment in dir on this machine, and
// starts one unless o.NoStart is set. The connection speaks the protocol of a
// guest (package wire), from its beginning. When the keeper stood already, the
// report holds no more than that it is ready.
func Open(ctx context.Context, dir string, o OpenOptions) (io.ReadWriteCloser, *Report, error) {
	wait := o.Wait
	if wait == 0 {
		wait = defaultWait
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("the environment was not open within %v", wait),
		Hint: "see " + filepath.Join(dir, fileLog)})
	defer cancel()
	rep := &Report{Version: wire.Version, Ready: true}
	for try := 1; ; try++ {
		info, err := peek(dir)
		if err != nil {
			return nil, nil, err
		}
		if info != nil && info.Phase == phaseReady && o.ID != "" && info.ID != o.ID {
			return nil, nil, anotherOne(dir)
		}
		if info != nil && info.Phase == phaseReady {
			conn, err := reach(ctx, info)
			if err == nil {
				if rep.Opened.IsZero() {
					rep.Opened = info.Opened
				}
				return conn, rep, nil
			}
			if !errors.Is(err, errEnded) {
				return nil, nil, err
			}
		}
		if o.NoStart {
			if again, err := comes(ctx, dir, info); !again {
				return nil, nil, err
			}
			continue
		}
		spec, err := store.LoadEnv(dir)
		if err != nil {
			return nil, nil, err
		}
		if o.ID != "" && spec.ID != o.ID {
			return nil, nil, anotherOne(dir)
		}
		if spec.Expired(time.Now()) {
			return nil, nil, &jobs.Error{Kind: jobs.KindAgain,
				Msg: "the environment " + spec.Name + " has ended: its auto_destroy_after_seconds (" +
					spec.DestroyAfter.String() + ") have passed",
				Hint: "berth env gc removes it; the next command that names it makes another one"}
		}
		if try > 10 {
			return nil, nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "the environment ends as soon as it is open",
				Hint: "see " + filepath.Join(dir, fileLog)}
		}
		if rep, err = launch(ctx, dir, o); err != nil {
			return nil, nil, err
		}
	}
}

// comes tells whether a keeper is about to be ready, after a moment.
func comes(ctx context.Context, dir string, info *Info) (bool, error) {
	if info == nil || !info.Running || info.Phase == phaseReady && !Alive(dir) {
		return false, ErrNotRunning
	}
	if !info.Near(lease.Self()) {
		return false, elsewhere(dir, info)
	}
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-time.After(lookAgain):
		return true, nil
	}
}

func elsewhere(dir string, info *Info) error {
	name := filepath.Base(dir)
	return &jobs.Error{Kind: jobs.KindAgain, Msg: fmt.Sprintf("environment %s is open on %s (process %d)", name, info.Host, info.PID),
		Hint: "use it there, or stop it there: berth env stop " + name}
}

// reach connects to a keeper and reads its greeting. The error is errEnded when
// there is none any more.
func reach(ctx context.Context, info *Info) (*os.File, error) {
	conn, err := socket.Dial(ctx, info.Socket)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, errEnded
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	_ = conn.SetReadDeadline(time.Now().Add(answerWait))
	said, err := readLine(conn, 64)
	switch {
	case !stop():
		_ = conn.Close()
		return nil, context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		_ = conn.Close()
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("the environment's keeper (process %d) does not answer", info.PID),
			Hint: fmt.Sprintf("was it stopped? kill -CONT %d, or kill -KILL %d and open it again", info.PID, info.PID)}
	case err != nil:
		_ = conn.Close()
		return nil, errEnded
	}
	_ = conn.SetReadDeadline(time.Time{})
	switch {
	case said == strings.TrimSpace(greeting(saySecret)) && info.Secret != "":
		if _, err = conn.WriteString(info.Secret + "\n"); err == nil {
			return conn, nil
		}
		err = errEnded
	case said == strings.TrimSpace(greeting(sayReady)) && info.Secret == "":
		return conn, nil
	case said == strings.TrimSpace(greeting(sayEnding)):
		err = errEnded
	case strings.HasPrefix(said, "berth-keeper "):
		err = &jobs.Error{Kind: jobs.KindConfig, Msg: "the environment is kept by another version of berth",
			Hint: fmt.Sprintf("stop it, and it is opened by this one: kill %d", info.PID)}
	default:
		err = &jobs.Error{Kind: jobs.KindInfra, Msg: "something that is no keeper listens on " + info.Socket, Hint: "remove that file"}
	}
	_ = conn.Close()
	return nil, err
}

// launch starts a keeper and waits until one is ready, be it that one or
// another that was first.
func launch(ctx context.Context, dir string, o OpenOptions) (*Report, error) {
	env := o.Env
	if env == nil {
		env = keeperEnv(os.Environ())
	}
	env = append(env[:len(env):len(env)], o.Keys...)
	log := filepath.Join(dir, fileLog)
	var scope []string
	if !o.Stays {
		scope = run.Scope(os.Getenv("USER"), env)
	}
	argv := append(scope, o.Node, "keep", "--env", dir)
	var input []byte
	if o.Input != nil {
		var err error
		if input, err = o.Input(ctx); err != nil {
			return nil, err
		}
	}
	p, reports, err := run.DetachFed(argv, env, "/", log, input)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "start the environment's keeper", Err: err}
	}
	defer reports.Close()
	stop := context.AfterFunc(ctx, func() { _ = reports.Close() })
	defer stop()
	meter := o.Meter
	if meter == nil && o.Progress != nil {
		meter = jobs.MeterLines(o.Progress)
	}
	lines := bufio.NewScanner(reports)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r Report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			continue // what systemd-run or a library says
		}
		switch {
		case r.Err() != nil:
			return nil, r.Err()
		case r.Ready:
			return &r, nil
		case r.Meter != nil && meter != nil:
			meter(r.Meter.What, r.Meter.Done, r.Meter.Of)
		case r.Progress != "" && o.Progress != nil:
			o.Progress(r.Progress)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	<-p.Done
	return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "the environment's keeper ended before the environment was open", Hint: "see " + log}
}

// keeperEnv is what a keeper gets of a client's environment: what programs of
// the site need to be found and to reach their servers. Commands see none of
// it but, in an allocation, what [batch.Passed] takes.
func keeperEnv(environ []string) []string {
	env := []string{}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		switch strings.ToLower(name) {
		case "path", "home", "user", "logname", "shell", "lang", "lc_all", "tz", "tmpdir",
			"xdg_runtime_dir", "xdg_cache_home", "xdg_config_home", "xdg_data_home",
			"dbus_session_bus_address", "ld_library_path", "http_proxy", "https_proxy", "no_proxy", "all_proxy", "ssl_cert_file", "ssl_cert_dir",
			"cuda_visible_devices", "rocr_visible_devices", "berth_home":
			env = append(env, e)
			continue
		}
		if len(batch.Passed([]string{e})) > 0 || batch.JobVariable(name) || program.IsOwn(name) {
			env = append(env, e)
			continue
		}
		for _, prefix := range []string{"DOCKER_", "CONTAINER_", "GOCOVERDIR"} {
			if strings.HasPrefix(name, prefix) {
				env = append(env, e)
				break
			}
		}
	}
	return env
}
