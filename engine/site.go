package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"berth/internal/images"
	"berth/internal/node/allocations"
	"berth/internal/remote/replica"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// site is a cluster that is reached through a login host: its scheduler's
// commands run there, and so do the jobs' first records. [replica.Site] is the
// one there is.
type site interface {
	allocations.Site
	// String names the login host for people.
	String() string
	Scheduler() jobs.Scheduler
	// Survey asks what has to be known before a job is planned.
	Survey(ctx context.Context, q replica.Question) (*replica.Survey, error)
	// Facts are those of the last survey, or of a new one.
	Facts(ctx context.Context) (replica.Facts, error)
	// PutImage makes sure that a file of this machine stands there.
	PutImage(ctx context.Context, from, home, to string) error
	// Put records a job there, see [replica.Never] for its errors.
	Put(ctx context.Context, home string, n store.New, script string) error
	// Round brings the copies of records here up to date, and those there by
	// what was made here: the wish for an end, the handle, a verdict.
	Round(ctx context.Context, recs []*jobs.Record) []error
	// Follow has done there what the jobs need done next, and is Round then.
	Follow(ctx context.Context, recs []*jobs.Record) []error
	// Remove takes a record away there.
	Remove(ctx context.Context, home, id string) error
}

// site is the cluster of a job, or nil when its scheduler is this machine's.
func (e *Engine) site(s *jobs.Spec) (site, error) {
	if s.Login == nil {
		return nil, nil
	}
	if e.sites == nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig,
			Msg: "job " + jobs.Short(s.ID) + " is on a cluster that is reached by ssh, which this program cannot do"}
	}
	return e.sites(*s.Login)
}

// schedulerOf is the scheduler of a job, here or on its cluster. where names it
// among the others.
func (e *Engine) schedulerOf(s *jobs.Spec) (sc jobs.Scheduler, where string, err error) {
	site, err := e.site(s)
	switch {
	case err != nil:
		return nil, s.Scheduler + " " + s.Login.Host, err
	case site != nil:
		return site.Scheduler(), s.Scheduler + " " + site.String(), nil
	}
	sc, err = e.scheduler(s.Scheduler)
	return sc, s.Scheduler, err
}

// loginKey is the same for the same login host reached in the same way.
func loginKey(s jobs.SSHSpec) string {
	return fmt.Sprintf("%q", []any{s.Host, s.User, s.Port, s.Key, s.Options})
}

// selected is what a job script says of the machine that it is for.
type selected struct {
	node  string // the program for the nodes
	who   jobs.Identity
	owner string // UID:GID
	ahead bool   // what is launched there is a standby
}

// selectSite returns that of this machine, or of the cluster's login host.
func (e *Engine) selectSite(ctx context.Context, s *jobs.Spec) (selected, error) {
	site, err := e.site(s)
	if err != nil {
		return selected{}, err
	}
	if site == nil {
		node, err := e.Node()
		return selected{node: node, who: identity(), owner: fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())}, err
	}
	f, err := site.Facts(ctx)
	return selected{node: f.Node, who: f.Identity, owner: fmt.Sprintf("%d:%d", f.UID, f.GID)}, err
}

// attemptDir is where the nodes see an attempt of a job, by its number.
func (e *Engine) attemptDir(s *jobs.Spec, number int) (string, error) {
	st := e.Store
	if s.Login != nil {
		var err error
		if st, err = store.At(s.LoginHome); err != nil {
			return "", err
		}
	}
	return store.AttemptDir(st.JobDir(s.ID), number), nil
}

// survey asks a job's cluster, in one round trip, for all that planning has to
// know of it, and settles where its record stands there. Without a cluster to
// ask it gives nil.
func (e *Engine) survey(ctx context.Context, s *jobs.Spec, t jobs.Task) (*replica.Survey, error) {
	site, err := e.site(s)
	if site == nil || err != nil {
		return nil, err
	}
	q := replica.Question{Image: imageOf(t), Overlay: t.Overlay.Name}
	if t.Template != "" || strings.HasPrefix(t.Reference, localImage) || images.IsReference(q.Image) {
		q.Image = "" // it is known where that is
	}
	if q.Overlay != "" {
		if err := overlay.CheckName(q.Overlay); err != nil {
			return nil, err
		}
	}
	if s.Workspace != nil {
		if q.Copy, err = workspace.CopyKey(s.Host, sourceOf(s.Workspace)); err != nil {
			return nil, repoError(err)
		}
	}
	g, err := site.Survey(ctx, q)
	if err != nil {
		return nil, err
	}
	s.LoginHome, s.User = g.Home, g.Identity.User
	return g, nil
}

// imageOf is the path of the image that is asked for.
func imageOf(t jobs.Task) string {
	if t.Image != "" {
		return t.Image
	}
	return t.Profile.Image
}

// localImage says of an image that it is a file on this machine.
const localImage = "local:"

// settleFarImage settles an image on a cluster. A path is one of the cluster's;
// when nothing stands there, or when "local:" says so, it is a file of this
// machine, which is sent by its content. So is what a template or a reference has here.
func (e *Engine) settleFarImage(ctx context.Context, s *jobs.Spec, t jobs.Task, g *replica.Survey, image string, dry bool) error {
	if s.ImageRef != "" {
		s.Image, s.ImageFrom = replica.ImagePath(s.LoginHome, s.ImageSum), image
		return nil
	}
	named := t.Template != "" || strings.HasPrefix(t.Reference, localImage)
	if !named {
		switch {
		case g.Image == nil:
			return fmt.Errorf("image %s was not looked for on %s", image, s.Login.Host)
		case !g.Image.Missing:
			s.Image = image
			if err := g.Image.Err(); err != nil {
				return &jobs.Error{Kind: jobs.KindOf(err), Msg: "on " + s.Login.Host, Err: err, Hint: jobs.HintOf(err)}
			}
			s.ImageSum, s.ImageDir = g.Image.Sum, g.Image.Dir
			if s.ImageSum == "" && s.ImageDir == "" {
				s.Notes = append(s.Notes, "the image "+image+" is so large that its content was not recorded; it is not compared on the node")
			}
			return nil
		}
	}
	if _, err := overlay.ImageID(image); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		msg := "image " + image + " does not exist, neither on " + s.Login.Host + " nor here"
		if named {
			msg = "image " + image + " does not exist here"
		}
		return &jobs.Error{Kind: jobs.KindNotFound, Msg: msg, Hint: "name one that does, or a reference such as docker://debian:12"}
	}
	sum := strings.Repeat("0", 64)
	if !dry {
		var err error
		if sum, err = e.content(ctx, image); err != nil {
			return err
		}
		s.ImageSum = sum
	}
	s.Image, s.ImageFrom = replica.ImagePath(s.LoginHome, sum), image
	s.Notes = append(s.Notes, "the image is "+image+" of this machine; "+s.Login.Host+" gets a copy once")
	return nil
}

// ImageThere is where the image of a task stands behind its login host, as for a job: a path is one of
// that host's, and a file of this machine, or the image of a template, is sent there once. With dry nothing
// is built or sent, and later is that path has nothing yet. notes are for people.
func (e *Engine) ImageThere(ctx context.Context, t jobs.Task, c Choice, dry bool) (path string, later bool, notes []string, err error) {
	s := &jobs.Spec{Place: t.Place}
	site, err := e.site(s)
	if err != nil || site == nil {
		return imageOf(t), false, nil, err
	}
	g, err := e.survey(ctx, s, t)
	if err != nil {
		return "", false, nil, err
	}
	image, err := e.imageHere(ctx, s, t, c, dry)
	if err == nil {
		err = e.settleFarImage(ctx, s, t, g, image, dry)
	}
	if err == nil && s.ImageFrom != "" && !dry {
		err = site.PutImage(ctx, s.ImageFrom, s.LoginHome, s.Image)
	}
	return s.Image, s.ImageFrom != "" && dry, s.Notes, err
}

// submitAt records a job on its cluster, before the scheduler hears of it. Whatever
// goes wrong, nothing was submitted; what may have arrived is taken away again.
func (e *Engine) submitAt(ctx context.Context, site site, rec *jobs.Record, n store.New, script string) error {
	s := &rec.Spec
	if s.ImageFrom != "" {
		if err := site.PutImage(ctx, s.ImageFrom, s.LoginHome, s.Image); err != nil {
			return e.withdraw(ctx, nil, rec, err)
		}
	}
	n.Spec.Notify = nil // this machine's berth tells of it
	err := site.Put(ctx, s.LoginHome, n, script)
	switch {
	case err == nil:
		return nil
	case replica.Never(err):
		return e.withdraw(ctx, nil, rec, err)
	}
	return e.withdraw(ctx, site, rec, err)
}

// withdraw removes the record of a job that its scheduler does not have, here
// and, with a site, there. When the other one cannot be reached, both stay: a
// later look concludes that the job never ran, and tells so there, where the
// runner of a script that turns up after all finds it.
func (e *Engine) withdraw(ctx context.Context, site site, rec *jobs.Record, cause error) error {
	if site != nil {
		if rerr := site.Remove(context.WithoutCancel(ctx), rec.Spec.LoginHome, rec.Spec.ID); rerr != nil {
			short := jobs.Short(rec.Spec.ID)
			rerr = errors.Join(rerr, e.refusedHere(rec, cause))
			return &jobs.Error{Kind: jobs.KindOf(cause),
				Msg:  "job " + short + " was not submitted, and " + site.String() + " may still have its record",
				Err:  errors.Join(cause, rerr),
				Hint: "berth status " + short + " concludes that when the host answers; berth rm " + short + " removes it then"}
		}
	}
	if rerr := e.Store.Remove(rec); rerr != nil {
		return errors.Join(cause, rerr)
	}
	return cause
}

// fetch updates the local copies of records that are on clusters: one query for
// each cluster, about all its jobs that have not ended. It returns the records as
// read again, and for each the error that kept it from an update.
func (e *Engine) fetch(ctx context.Context, recs []*jobs.Record) ([]*jobs.Record, []error) {
	return e.refreshAll(ctx, recs, func(r *jobs.Record) bool { return !jobs.StateOf(r).Final() }, site.Round)
}

// refreshAll queries each cluster once about those of its jobs that are wanted.
func (e *Engine) refreshAll(
	ctx context.Context, recs []*jobs.Record, wanted func(*jobs.Record) bool,
	ask func(site, context.Context, []*jobs.Record) []error,
) ([]*jobs.Record, []error) {
	errs := make([]error, len(recs))
	type group struct {
		site site
		at   []int
	}
	groups := map[string]*group{}
	for i, r := range recs {
		if r.Spec.Login == nil || !wanted(r) {
			continue
		}
		site, err := e.site(&r.Spec)
		if err != nil {
			errs[i] = err
			continue
		}
		key := loginKey(*r.Spec.Login)
		g := groups[key]
		if g == nil {
			g = &group{site: site}
			groups[key] = g
		}
		g.at = append(g.at, i)
	}
	if len(groups) == 0 {
		return recs, errs
	}
	recs = append([]*jobs.Record{}, recs...)
	for _, g := range groups {
		list := make([]*jobs.Record, len(g.at))
		for k, i := range g.at {
			list[k] = recs[i]
		}
		for k, err := range ask(g.site, ctx, list) {
			i := g.at[k]
			errs[i] = err
			if fresh, lerr := store.LoadDir(recs[i].Dir); lerr == nil {
				recs[i] = fresh
			} else if err == nil {
				errs[i] = lerr
			}
		}
	}
	return recs, errs
}

// syncCancel brings what was made here of a job to its cluster at once.
func (e *Engine) syncCancel(ctx context.Context, r *jobs.Record) error {
	site, err := e.site(&r.Spec)
	if site == nil || err != nil {
		return err
	}
	return site.Round(ctx, []*jobs.Record{r})[0]
}

// Remove takes away the record of a job that has ended, on its cluster first.
// With force it goes here even when the cluster cannot be reached; the error
// then says that it is still there.
func (e *Engine) Remove(ctx context.Context, r *jobs.Record, force bool) error {
	site, err := e.site(&r.Spec)
	if err == nil && site != nil {
		err = site.Remove(ctx, r.Spec.LoginHome, r.Spec.ID)
	}
	if err != nil {
		err = &jobs.Error{Kind: jobs.KindInfra,
			Msg: "the record of job " + jobs.Short(r.Spec.ID) + " on " + r.Spec.Login.Host + " could not be removed",
			Err: err}
		if !force {
			err.(*jobs.Error).Hint = "try again, or remove it here alone: berth rm --force " + //nolint:errorlint // it was made so
				jobs.Short(r.Spec.ID)
			return err
		}
	}
	return errors.Join(e.Store.Remove(r), err)
}
