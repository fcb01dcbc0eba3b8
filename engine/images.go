package engine

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"berth/internal/images"
	sweeps "berth/internal/sweep"
	"berth/jobs"
	"berth/overlay"
)

// settleReference puts the image of a reference into the cache and returns its
// path: what the job runs is settled now, whatever the name means later. With
// dry or offline no registry is queried and nothing is fetched.
func (e *Engine) settleReference(ctx context.Context, s *jobs.Spec, ref string, dry, offline bool) (path string, err error) {
	if ref, err = images.Settle(ref); err != nil {
		return "", err
	}
	s.ImageRef = ref
	if e.images == nil {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "there is no cache of images for " + ref}
	}
	var img images.Image
	if dry || offline {
		img, err = e.images.Known(ref)
	} else {
		var known bool
		if img, known, err = e.images.ForJob(ctx, ref); known {
			s.Notes = append(s.Notes, "the image "+ref+" is what the cache has of it; berth image pull fetches it again")
		}
	}
	switch {
	case err == nil:
	case dry && jobs.KindOf(err) == jobs.KindNotFound && !images.IsBuilt(ref):
		s.ImageSum = strings.Repeat("0", 64)
		s.Notes = append(s.Notes, "the image "+ref+" is not in the cache: a submission fetches it, and its path has its SHA-256 in place of the zeros")
		return e.images.Path(s.ImageSum), nil
	default:
		return "", err
	}
	s.ImageDigest, s.ImageSum = img.Digest, img.Sum
	return img.Path, nil
}

// content is the SHA-256 of an image that is a file of this machine.
func (e *Engine) content(ctx context.Context, path string) (string, error) {
	if e.images == nil {
		return images.Sum(ctx, path)
	}
	return e.images.Content(ctx, path)
}

// fetchFor has the image of a new environment in the cache before anything is
// started for it, by this process: it may ask registries for digests, and be on
// a login node whose compute nodes have no network. Where it has no container
// program the machine of the environment fetches by itself.
func (e *Engine) fetchFor(ctx context.Context, s *jobs.EnvSpec, offline bool) error {
	if e.images == nil || !s.Can().Layers || s.Login != nil || !images.IsReference(s.Image) {
		return nil
	}
	ref, err := images.Settle(s.Image)
	if err != nil {
		return err
	}
	if _, err := e.images.Known(ref); err == nil || offline {
		return err
	}
	if _, err := e.images.Program(); err != nil && s.Scheduler != "" {
		return nil
	}
	_, err = e.images.Get(ctx, ref)
	return err
}

// ImagesInUse tells which images something needs, by the SHA-256 of those in the
// cache and by the paths of all, and what: a job that has not ended, an
// environment, a sweep with tasks that have no result, a named overlay.
func (e *Engine) ImagesInUse() (map[string]string, error) {
	use := map[string]string{}
	path := func(p, who string) {
		if dir, name := filepath.Split(p); filepath.Clean(dir) == filepath.Dir(e.images.Path("")) {
			use[strings.TrimSuffix(name, ".sif")] = who
		}
		if p != "" {
			use[p] = who
		}
	}
	place := func(dir, layer, who string) error {
		if sum := images.Pinned(dir); sum != "" {
			use[sum] = who
		}
		m, err := overlay.ReadMark(layer)
		if m != nil {
			path(m.Image, who)
		}
		return err
	}
	recs, err := e.Store.ListOpen()
	if err != nil {
		return nil, err
	}
	for _, r := range recs {
		if jobs.StateOf(r).Final() {
			continue
		}
		who := "job " + jobs.Short(r.Spec.ID)
		path(r.Spec.Image, who)
		path(r.Spec.ImageFrom, who)
		if s := r.Spec.Submit; s != nil {
			for _, i := range s.Images {
				path(i.Image, who)
			}
		}
	}
	envs, err := e.Store.ListEnvs()
	if err != nil {
		return nil, err
	}
	for _, s := range envs {
		who, dir := "environment "+s.Name, e.Store.EnvDir(s.Name)
		path(s.Image, who)
		if err := place(dir, filepath.Join(dir, "overlay"), who); err != nil {
			return nil, err
		}
	}
	// A sweep goes on with the image that it began with, whenever that is, unless it was cancelled.
	all, unread, err := sweeps.Scan(filepath.Join(e.Store.Home(), "sweeps"))
	for _, u := range unread {
		err = errors.Join(err, &jobs.Error{Kind: jobs.KindOf(u.Err), Err: u.Err,
			Msg:  "which image sweep " + jobs.Short(filepath.Base(u.Dir)) + " needs is not known",
			Hint: "berth sweep ls lists the sweeps; where it is not wanted any more, remove " + u.Dir})
	}
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Spec.Worker == nil || s.Spec.Worker.Image == "" || s.Cancelled() {
			continue
		}
		if f, err := s.Fold(); err != nil || f.Left() > 0 {
			path(s.Spec.Worker.Image, "sweep "+s.Spec.Name)
		}
	}
	// Environments of other machines, and overlays of jobs.
	for pattern, who := range map[string]string{"far/*": "an environment of another machine", "overlays/*": "overlay "} {
		dirs, err := filepath.Glob(filepath.Join(e.Store.Home(), pattern))
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			layer := filepath.Join(dir, "overlay")
			name := who
			if strings.HasPrefix(pattern, "overlays") {
				layer, name = dir, who+filepath.Base(dir)
			}
			if err := place(dir, layer, name); err != nil {
				return nil, err
			}
		}
	}
	return use, nil
}
