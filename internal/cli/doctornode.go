package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/backends/ssh"
	"berth/engine"
	"berth/internal/config"
	"berth/internal/config/profile"
	"berth/internal/doctor"
	"berth/internal/node/nodebin"
	"berth/internal/sys/ids"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/slurm"
)

// nodeMemory is what the job that looks at a node asks for: it starts a few
// small containers.
const nodeMemory = 512 * jobs.MiB

// lookOnNode looks at a compute node of the Slurm that is here.
func (a *app) lookOnNode(ctx context.Context, f *doctorFlags, w doctor.Where, here *doctor.Place) (*doctor.Place, error) {
	if bad := here.Find(doctor.IDScheduler); bad.Status == doctor.Fail || bad.Data["name"] != jobs.SchedulerSlurm {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "there is no Slurm here that could start a job on a node: " + bad.Why, Hint: bad.Do}
	}
	id, err := ids.New()
	if err != nil {
		return nil, err
	}
	o := doctor.OnNode{
		Where: w, ID: id, Identity: engine.Identity(), Wait: f.wait, Resources: jobs.Resources{CPUs: 1, Memory: nodeMemory},
		Reaper: engine.ReaperAsks(), Accounts: strings.FieldsFunc(here.Find("slurm.account").Data["accounts"], func(r rune) bool { return r == ',' }),
		Say: func(line string) { a.say("%s", line) },
	}
	if o.Where.Profile.ModuleInit == "" {
		o.Where.Profile.ModuleInit = here.Find("modules").Data["init"]
	}
	times := slurm.Config{SubmitTimeout: time.Minute, QueryTimeout: 20 * time.Second}
	if w.Login == nil {
		h, err := config.Home()
		if err != nil {
			return nil, err
		}
		o.Where.State = h
		o.Scheduler, o.Ground = slurm.New(run.Local{}, times), &doctor.Here{State: h, Install: nodebin.Install}
		return o.Look(ctx)
	}
	host, err := ssh.Backend{}.Host(*w.Login)
	if err != nil {
		return nil, err
	}
	o.Where.Login, o.Poll, times.Login = nil, time.Second, host.String()
	o.Scheduler = slurm.New(host, times)
	o.Ground = &doctor.There{On: host, Install: func(ctx context.Context) (string, error) { return host.Install(ctx, false, o.Say) }}
	return o.Look(ctx)
}

// farTime bounds a look at another host: the checks, and the way there.
const farTime = 60 * time.Second

// lookFar has berth's program look at a host that is reached by ssh.
func (a *app) lookFar(ctx context.Context, login jobs.SSHSpec, w doctor.Where) (*doctor.Place, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, farTime, errors.New("it did not answer within "+farTime.String()))
	defer cancel()
	h, err := ssh.Backend{}.Host(login)
	if err != nil {
		return nil, err
	}
	name, err := h.Install(ctx, true, func(line string) { a.say("%s", line) })
	if err != nil {
		return nil, err
	}
	w.Where, w.Login, w.State = "login", nil, ""
	request, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	out, err := run.Output(ctx, h, jobs.Cmd{
		Argv:  []string{"/bin/sh", "-c", slurm.FindOnLogin + `exec "$HOME/.local/state/berth/bin/$1" examine --json --request -`, "sh", name},
		Stdin: bytes.NewReader(request),
	})
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "look at " + h.String(), Err: err, Hint: jobs.HintOf(err)}
	}
	p, err := doctor.ReadAnswer(out)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read what " + h.String() + " answers", Err: err}
	}
	return p, nil
}

// writeProfile writes what was found as a profile. It is read back first: one
// that could not be used is not written.
func (a *app) writeProfile(f *doctorFlags, places []*doctor.Place) error {
	dir := config.OwnProfileDir()
	if dir == "" {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "there is no directory for profiles", Hint: "set HOME or XDG_CONFIG_HOME"}
	}
	var node *doctor.Place
	if len(places) > 1 {
		node = places[1]
	}
	file := filepath.Join(dir, f.write+".toml")
	text := doctor.Profile(f.write, places[0], node)
	if _, err := profile.Parse(file, []byte(text)); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "what was found makes no profile that can be read, and nothing was written", Err: err,
			Hint: "please report this, with: berth doctor --json"}
	}
	if err := profile.Write(file, []byte(text), f.force); err != nil {
		if errors.Is(err, os.ErrExist) {
			return exists(f.write)
		}
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "write the profile", Err: err}
	}
	then := "use it with --profile " + f.write
	for _, p := range places {
		if !p.OK() {
			then = "what failed has to be repaired before jobs work with it"
		}
	}
	a.say("wrote %s; %s", file, then)
	return nil
}

func exists(name string) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: "the profile " + filepath.Join(config.OwnProfileDir(), name+".toml") + " exists and was left alone",
		Hint: "another name, or --force"}
}
