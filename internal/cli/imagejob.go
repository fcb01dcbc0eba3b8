package cli

import (
	"fmt"

	"berth/engine"
	"berth/internal/images"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// pullInJob has a job fetch what is not in the cache. What references mean is
// asked here, where that can be done, and settled.
func (a *app) pullInJob(cmd *cobra.Command, f *taskFlags, e *cached, refs []string) ([]images.Image, error) {
	out := make([]images.Image, len(refs))
	var list []engine.Pull
	for i, ref := range refs {
		digest, err := e.Images.Digest(cmd.Context(), ref)
		switch {
		case jobs.KindOf(err) == jobs.KindInfra && cmd.Context().Err() == nil:
			a.say("note: %v; the job follows the name by itself", err)
			digest = ""
		case err != nil:
			return nil, err
		case digest != "":
			if img, ok := e.Images.HaveDigest(ref, digest); ok {
				out[i] = img
				continue
			}
		}
		list = append(list, engine.Pull{Ref: ref, Digest: digest})
	}
	if len(list) == 0 {
		return out, nil
	}
	t, choice, notes, err := f.place(cmd, a.cfg, "image pull")
	if err != nil {
		return nil, err
	}
	rec, more, err := e.SubmitPull(cmd.Context(), list, t, choice)
	if err != nil {
		return nil, err
	}
	a.notes(append(notes, more...))
	if err := a.watch(cmd.Context(), e.Engine, rec, true, false); err != nil {
		return nil, err
	}
	for i, ref := range refs {
		if out[i].Sum != "" {
			continue
		}
		if out[i], err = e.Images.Known(ref); err != nil {
			return nil, fmt.Errorf("the job has fetched it, and it is not seen here: %w", err)
		}
	}
	return out, nil
}
