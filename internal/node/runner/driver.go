package runner

import (
	"context"
	"path/filepath"

	"berth/jobs"
	"berth/jobs/store"
)

// layerDir is where the attempt's writable layer has its files.
func (r *attempt) layerDir() string {
	if name := r.spec.Overlay.Name; name != "" {
		return filepath.Join(r.stateDir(), "overlays", name)
	}
	return filepath.Join(r.scratch.Dir, "overlay")
}

// openLayer opens the attempt's writable layer, for its backend.
func (r *attempt) openLayer(ctx context.Context, p *place, over jobs.LayerOver) (string, error) {
	r.image = over.Image
	r.event("image", over.Image.String())
	if over.Image.Failed != "" {
		r.note("the image was not staged on " + over.Image.Node + ": " + over.Image.Failed)
	}
	layer := r.spec.Overlay
	text := "overlay driver " + over.Driver
	if over.Why != "" {
		text += " (" + over.Why + ")"
	}
	if over.Driver != layer.Driver {
		r.note(text)
	}
	r.event("overlay", text)
	layer.Driver, layer.Why = over.Driver, over.Why
	r.spec.Overlay = layer
	layer.Templates = store.TemplatesIn(r.stateDir())
	r.use = &jobs.OverlayUse{Driver: layer.Driver, Way: jobs.WayTemporary}
	var err error
	if layer.Name == "" {
		p.layer, err = r.throwAway(ctx, r.stateDir(), layer)
	} else {
		p.layer, err = r.openNamed(ctx, r.layerDir(), layer)
	}
	if err != nil {
		return "", err
	}
	r.layer.Store(p.layer)
	if layer.Name != "" {
		use, err := p.layer.Snapshot(ctx, r.on, r.snapshotAs(layer.Snapshot), r.info.ID)
		if err = r.before(&use, err); err != nil {
			return "", err
		}
		r.use = &use
	}
	r.notes = append(r.notes, p.layer.Notes...)
	return p.layer.Path, nil
}
