package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"berth/internal/config/sitefile"
	"berth/internal/images"
	"berth/internal/network"
	"berth/jobs"
	"berth/jobs/store"
)

// Build is an image that a job is to build.
type Build struct {
	Ref        string // build:NAME, or a template's
	Definition string
	Dir        string // where relative paths of it begin, or ""
}

// SubmitBuild hands a job to a scheduler that builds an image into the cache of
// this state directory. Of the task, its name, resources and options of the
// scheduler count. The notes are for people.
func (e *Engine) SubmitBuild(ctx context.Context, b Build, t jobs.Task, c Choice) (*jobs.Record, []string, error) {
	args := []string{"--name", b.Ref, "--dir", b.Dir}
	n, err := buildNetwork(t.Place)
	if err != nil {
		return nil, nil, err
	}
	if !n.Open() {
		if err := images.ReadHeader([]byte(b.Definition)).Within(n); err != nil {
			return nil, nil, err
		}
		text, err := json.Marshal(n)
		if err != nil {
			return nil, nil, err
		}
		args = append(args, "--network", string(text))
	}
	return e.submitOwn(ctx, t, c, b.Definition, jobs.VerbBuild, args...)
}

// buildNetwork is what a build reaches: what [network.build] says, or all of its node's
// network, within the bounds of the project, the profile and the site.
func buildNetwork(p jobs.Place) (n jobs.Network, err error) {
	n = jobs.Network{Bounds: p.Network.Bounds}
	if !p.Network.Phases.Build.Silent() {
		n = p.Network.Phase(jobs.PhaseBuild)
		n.Via, n.Transparent, n.Learn = p.Network.Via, "", false
	}
	site, err := sitefile.Read()
	if err != nil {
		return n, err
	}
	in := jobs.Place{Network: n, Profile: p.Profile}
	site.Bind(&in)
	boundProfile(&in)
	n = in.Network.Settled()
	if what := deniedInOpen(n); what != "" {
		return n, &jobs.Error{Kind: jobs.KindConfig, Msg: "network.build: " + what + `: not held in the mode "open", in which nothing is looked at`,
			Hint: `give builds a list, or nothing: --network none; in a task file: [network.build] mode = "none"`}
	}
	if n.Mode != jobs.NetworkAllow {
		return n, nil
	}
	if n.Via == jobs.ViaLogin {
		return n, &jobs.Error{Kind: jobs.KindConfig, Msg: `network.build: builds have no relay, and network.via is "login"`,
			Hint: "build on the login node: berth image build --local; or without a network: --network none"}
	}
	if _, _, err := network.Policies(n); err != nil {
		return n, &jobs.Error{Kind: jobs.KindUsage, Msg: "network.build: " + err.Error(),
			Hint: "the words of a network: berth network bundles, berth help --page network"}
	}
	return n, nil
}

// Pull is a reference that a job is to fetch.
type Pull struct {
	Ref    string
	Digest string // what it means, or "" where that could not be asked
}

// SubmitPull hands a job to a scheduler that fetches images into the cache, as
// [Engine.SubmitBuild] does.
func (e *Engine) SubmitPull(ctx context.Context, list []Pull, t jobs.Task, c Choice) (*jobs.Record, []string, error) {
	var args []string
	for _, p := range list {
		digest := p.Digest
		if digest == "" {
			digest = jobs.NoDigest
		}
		args = append(args, p.Ref, digest)
	}
	return e.submitOwn(ctx, t, c, "", jobs.VerbPull, args...)
}

// submitOwn submits a job without a container whose command is a verb of
// berth-node's that puts something into the cache of images.
func (e *Engine) submitOwn(ctx context.Context, t jobs.Task, c Choice, prompt, verb string, args ...string) (*jobs.Record, []string, error) {
	if t.Login != nil {
		return nil, nil, &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "images are put into the cache of this machine, and the cluster of " + t.Login.Host + " has its own",
			Hint: "do it there: ssh " + t.Login.Host + " berth image ...; or here, and it is sent with the job: --scheduler local"}
	}
	node, err := e.Node()
	if err != nil {
		return nil, nil, err
	}
	// What comes on its standard input is all that it works on, in one process.
	t.Prompt, t.Workspace, t.Done, t.Artifacts, t.Slurm.MPI = prompt, nil, nil, nil, ""
	t.Results = jobs.ResultLimits{}
	t.Retry = &jobs.Retry{} // whoever wants the image asks again
	t.Place = jobs.Place{
		Backend: jobs.BackendBare, Env: e.images.CredentialNames(e.value, t.Profile.Proxy == jobs.Proxy{}),
		Resources: jobs.Resources{CPUs: t.Resources.CPUs, Memory: t.Resources.Memory, Time: t.Resources.Time},
		Scheduler: t.Scheduler, Slurm: t.Slurm, Profile: t.Profile, Target: t.Target,
	}
	t.Profile.Network = jobs.NetworkBound{} // of what it runs, see buildNetwork; itself it has its node's network
	t.Reference, t.Template = "", ""
	t.Command = jobs.Command{Argv: append([]string{node, verb, "--home", e.Store.Home(),
		"--images", e.images.Dir, "--scratch", t.Profile.Scratch}, args...)}
	s, err := e.Plan(ctx, t, c, false)
	if err != nil {
		return nil, nil, err
	}
	rec, err := e.Submit(ctx, s, t)
	return rec, s.Notes, err
}

func (e *Engine) value(name string) string {
	v, _ := e.Getenv(name)
	return v
}

// build has a job build an image, and waits for it. What the job said last is
// told when it fails.
func (e *Engine) build(ctx context.Context, b Build, t jobs.Task, c Choice) error {
	rec, _, err := e.SubmitBuild(ctx, b, t, c)
	if err != nil {
		return err
	}
	short := jobs.Short(rec.Spec.ID)
	e.images.Progress(fmt.Sprintf("building %s in job %s of the scheduler %s; it may take some minutes: berth logs -f %s",
		b.Ref, short, rec.Spec.Scheduler, short))
	v, err := e.Wait(ctx, rec.Spec.ID, nil)
	if err != nil {
		if ctx.Err() != nil {
			e.images.Progress(fmt.Sprintf("job %s goes on building; berth cancel %s ends it", short, short))
		}
		return err
	}
	if v.State == jobs.StateCompleted {
		return nil
	}
	for _, line := range lastLines(filepath.Join(v.Current().Dir, store.FileStderr)) {
		e.images.Progress("job " + short + ": " + line)
	}
	failed := &jobs.Error{Kind: jobs.KindInfra, Msg: "the job " + short + " that builds " + b.Ref + " ended: " + string(v.State),
		Hint: "all that it said: berth logs " + short}
	if x := v.Current().Exit; x != nil {
		failed.Err = errors.New(x.Reason)
		if x.State == jobs.StateFailed {
			failed.Kind = kindOfCode(x.Exit.Code)
		}
	}
	return failed
}

// kindOfCode is what berth-node's own exit code says.
func kindOfCode(code int) jobs.Kind {
	switch code {
	case jobs.CodeTaskFailed, jobs.CodeUsage:
		return jobs.KindUsage
	case jobs.CodeNotFound:
		return jobs.KindNotFound
	case jobs.CodeAuth:
		return jobs.KindAuth
	case jobs.CodeAgain:
		return jobs.KindAgain
	case jobs.CodeConfig:
		return jobs.KindConfig
	}
	return jobs.KindInfra
}

// lastLines are the last lines of a log.
func lastLines(path string) []string {
	const most, bytes = 12, 8 << 10
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return nil
	}
	b, err := io.ReadAll(io.NewSectionReader(f, max(0, fi.Size()-bytes), bytes))
	if err != nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for i, line := range lines { // of what programs write over, the last is seen
		lines[i] = line[strings.LastIndexByte(strings.TrimRight(line, "\r"), '\r')+1:]
	}
	return lines[max(0, len(lines)-most):]
}
