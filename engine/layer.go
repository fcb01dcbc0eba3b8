package engine

import (
	"fmt"
	"path/filepath"

	"berth/internal/sys/lease"
	"berth/internal/sys/purge"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// settleLayer takes over what a task says of its writable layer beside its
// name and size, and refuses what does not go together.
func (e *Engine) settleLayer(s *jobs.Spec, t jobs.Task) error {
	switch keep := s.Overlay.Keep; {
	case keep == "":
	case s.Overlay.Name != "":
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "[terminal] keep: the overlay " + s.Overlay.Name + " stays in any case", Hint: "leave keep out"}
	case s.Resources.Tasks > 1:
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "[terminal] keep: every task of [resources] ntasks has a layer of its own, and none of them can be kept",
			Hint: "leave keep or ntasks out"}
	case !s.Can().Here():
		return cannotKeep(&s.Place)
	case !s.Can().Layers && s.Clustered():
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg: "[terminal] keep: the backend " + s.Backend + " keeps places on this machine alone, and the job is the scheduler " +
				s.Scheduler + "'s",
			Hint: "name in [results] artifacts what is to stay; or --scheduler local, or a backend with layers: --backend singularity"}
	}
	if !s.Can().Layers {
		return nil
	}
	if t.Overlay.Wait != 0 && s.Overlay.Name == "" {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "[terminal] overlay_wait: the task names no overlay, and so waits for none",
			Hint: "name one with overlay, or leave overlay_wait out"}
	}
	if t.Overlay.Snapshot != "" && s.Overlay.Name == "" {
		return &jobs.Error{Kind: jobs.KindUsage,
			Msg:  "[terminal] overlay_snapshot: the task names no overlay, and works on a layer that is thrown away",
			Hint: "name one with overlay, or leave overlay_snapshot out"}
	}
	if s.Overlay.Name == "" {
		return nil
	}
	dir := e.Store.Overlays()
	if s.Login != nil {
		dir = filepath.Join(s.LoginHome, "overlays")
	}
	if at, age := purge.Known(dir, s.Profile.Purge); at != "" {
		s.Notes = append(s.Notes, fmt.Sprintf("overlay %s is in %s, where files unused for %s are removed", s.Overlay.Name, at, age))
	}
	if s.Login != nil {
		return nil
	}
	if o, err := lease.Holder(filepath.Join(e.Store.Overlays(), s.Overlay.Name)); err == nil && o != nil && !store.HasExit(o.Dir) {
		note := "overlay " + s.Overlay.Name + " is in use now, by " + overlay.By(*o)
		if s.Overlay.Wait == 0 {
			note += "; a job that finds it in use ends with 75 unless it may wait: --overlay-wait TIME"
		}
		s.Notes = append(s.Notes, note)
	}
	return nil
}

// ThrowAway settles that commands have a layer that is thrown away, whatever was planned.
func (e *Engine) ThrowAway(s *jobs.Spec) error {
	s.Overlay = jobs.OverlaySpec{}
	return e.settleOverlay(s, true, nil)
}

// cannotKeep is the error for a job whose place ends where it stands.
func cannotKeep(p *jobs.Place) error {
	err := absent("[terminal] keep", p)
	err.Hint = "name in [results] artifacts what is to stay, or name another --backend"
	return err
}
