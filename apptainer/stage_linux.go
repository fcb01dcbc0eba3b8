package apptainer

import (
	"context"
	"errors"
	"os"

	"berth/internal/images"
	"berth/internal/node/staging"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/overlay"
)

// node is where the copies are, or says why there are none.
func (s Stager) node() (*staging.Node, staging.Place) {
	at := staging.Find(s.Home, s.Scratch, os.Getenv)
	return &staging.Node{Dir: at.Dir, Progress: s.Progress, Meter: s.Meter, Unpack: s.unpackInto,
		Verify: func(ctx context.Context, path, sum string) error { return images.Check(ctx, s.Home, path, sum) }}, at
}

// Stage settles where an image is run from, and has it there. sum is the
// SHA-256 of the SIF at path, or "" where none is recorded. That there is no
// copy is no error, but for the driver kernel, which needs one.
func (s Stager) Stage(ctx context.Context, path, sum string, runs Runs) (*Used, error) {
	u := &Used{ImageUse: jobs.ImageUse{Way: jobs.ImageInPlace, Path: path, Node: images.Hostname()}}
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	c := staging.Case{Setting: runs.Stage, Driver: runs.Driver, Dir: fi.IsDir(), Local: overlay.TakesDirectories(path), Size: fi.Size(),
		Tasks: runs.Tasks, Environment: runs.Environment, Time: runs.Time}
	img := staging.Image{Path: path, Sum: sum}
	form, why := c.Decide()
	if u.Why = why; form == "" && !c.Open() {
		return s.inPlace(ctx, u, sum)
	}
	n, at := s.node()
	c.Lasting, c.Memory = at.Lasting || at.Dir == "", at.Memory
	if at.Dir != "" && c.Open() {
		c.There = n.Has(img, staging.SIF)
		if !c.There {
			if others, use, err := n.InPlace(img, s.Owner); err == nil {
				c.Others, u.copy = others, use
			}
		}
	}
	if form, u.Why = c.Decide(); form == "" {
		return s.inPlace(ctx, u, sum)
	}
	if at.Dir == "" {
		err := errors.New(at.Why)
		if form == staging.Unpacked {
			return nil, unpackError(path, err)
		}
		u.Failed = err.Error()
		return s.inPlace(ctx, u, sum)
	}
	copied, err := n.Stage(ctx, img, form, s.Owner)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, err
	case form == staging.Unpacked:
		return nil, unpackError(path, err)
	default:
		u.Failed = err.Error()
		return s.inPlace(ctx, u, sum)
	}
	_ = u.Close() // it is not used in place after all
	u.copy, u.Path, u.Reused, u.Way = copied, copied.Path, copied.Reused, jobs.ImageStaged
	if form == staging.Unpacked {
		u.Way = jobs.ImageUnpacked
	}
	return u, nil
}

// inPlace uses the image where it is, after a look at what it is.
func (s Stager) inPlace(ctx context.Context, u *Used, sum string) (*Used, error) {
	if sum != "" {
		if err := images.Check(ctx, s.Home, u.Path, sum); err != nil {
			return nil, errors.Join(err, u.Close())
		}
	}
	return u, nil
}

// unpackError says that an image could not be unpacked. What a node lacks for the
// moment is no fault of the configuration: there it may be tried again.
func unpackError(path string, err error) error {
	hint, kind, blame := jobs.HintOf(err), jobs.KindOf(err), jobs.BlameOf(err)
	if hint == "" {
		hint = "make room on the node, or name another place: scratch in a profile"
	}
	if kind == jobs.KindUnknown {
		kind = jobs.KindConfig
		if unlucky(err) {
			kind, blame = jobs.KindInfra, jobs.BlameNode
		}
	}
	return &jobs.Error{Kind: kind, Blame: blame, Msg: "unpack " + path, Err: err, Hint: hint}
}

// unpackInto unpacks a SIF into the directory root, which is made. Temporary
// files go to dir.
func (s Stager) unpackInto(ctx context.Context, sif, root, dir string) error {
	if why := tooSmall(); why != "" {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: why, Hint: "ask for more memory, or open an environment of this image once outside of the job"}
	}
	env, drop, err := buildEnviron(dir)
	if err != nil {
		return err
	}
	defer drop()
	_, err = run.Output(ctx, s.On, jobs.Cmd{Argv: []string{s.Program, "build", "--sandbox", root, sif}, Dir: "/", Env: env})
	var failed *run.Error
	switch {
	case !errors.As(err, &failed) || failed.Err != nil:
		return err
	case wasKilled(err):
		return &jobs.Error{Kind: jobs.KindInfra, Blame: jobs.BlameNode, Msg: "it was killed", Err: err, Hint: "is there memory enough? " + hintCut}
	case saysTrouble(failed.Stderr):
		return &jobs.Error{Kind: jobs.KindInfra, Blame: jobs.BlameNode, Msg: images.LastLine(failed.Stderr)}
	}
	return errors.New(images.LastLine(failed.Stderr))
}

// unpackBase is where images are unpacked.
func (o *opener) unpackBase() (string, error) {
	_, at := o.stager().node()
	if at.Dir == "" {
		return "", errors.New(at.Why)
	}
	return at.Dir, nil
}
