package overlay

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"berth/internal/sys/run"
	"berth/jobs"
)

// Again makes a throw-away layer below dir, which must be on real disk, with the
// content of one that was kept: name is what [Keep] said, in the overlays of the
// directory overlays. The kept one stays as it is, so that whoever goes on from
// it can do so once more.
func Again(ctx context.Context, on jobs.Starter, overlays, name, dir string, spec jobs.OverlaySpec, img Image) (*Layer, error) {
	from, err := (&Set{Dir: overlays}).at(name)
	if err != nil || !strings.HasPrefix(name, prefixKept) {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("%q is no layer that was kept", name), Err: err}
	}
	m, err := ReadMark(from)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "overlay " + name + ", from which the job was to go on, is not there any more",
			Hint: "submit the task again; berth overlay gc removes what was kept for long"}
	}
	if img.ID, err = LowerID(img.Path); err != nil {
		return nil, err
	}
	if err := m.CheckImage(name, img); err != nil {
		return nil, err
	}
	if m.Driver != spec.Driver {
		return nil, &jobs.Error{Kind: jobs.KindInfra,
			Msg: fmt.Sprintf("overlay %s, from which the job goes on, was written by the driver %s, and this node has %s",
				name, m.Driver, spec.Driver)}
	}
	path := layerPath(from, m.Driver)
	if err := hasLayer(path, m.Driver); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "overlay " + name + ", from which the job was to go on, has lost its content", Err: err,
			Hint: "submit the task again; some sites remove old files"}
	}
	l, err := throwAwayCopy(ctx, on, m.Driver, path, filepath.Join(dir, "overlay"))
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "copy overlay " + name + ", from which the job goes on", Err: err,
			Hint: "is there space left? df -h " + dir}
	}
	if m.Driver != jobs.DriverExt3 {
		l.limit = Space{Bytes: spec.Size, Files: spec.Inodes}
	}
	return l, nil
}

// Drop removes a layer that was kept of the job, and nothing else.
func Drop(ctx context.Context, on jobs.Starter, overlays, name, job string) error {
	s := &Set{Dir: overlays, On: on}
	dir, err := s.at(name)
	if err != nil {
		return err
	}
	m, err := ReadMark(dir)
	if err != nil || m == nil {
		return err
	}
	if !strings.HasPrefix(name, prefixKept) || m.Kept == nil || m.Kept.Job != job {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "overlay " + name + " was not kept of job " + jobs.Short(job)}
	}
	if err := onlyOurs(dir); err != nil {
		return err
	}
	gone := s.goneName(dir)
	if err := os.Rename(dir, gone); err != nil {
		return err
	}
	return run.RemoveFiles(ctx, on, gone)
}
