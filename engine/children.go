package engine

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/config/sitefile"
	"berth/internal/images"
	"berth/internal/network"
	"berth/internal/node/batch"
	"berth/jobs"
	"berth/jobs/store"
)

// childTime is how long a job of a task's lasts at most where neither [submit] nor the
// task itself has a time.
const childTime = time.Hour

// settleSubmit settles the bounds of what a task submits, and its images as the task's own
// with dry and offline, and refuses [jobs.Submit] where nothing would pass on what is asked.
func (e *Engine) settleSubmit(ctx context.Context, s *jobs.Spec, dry, offline bool) error {
	if s.Submit == nil {
		return nil
	}
	switch {
	case s.Can().OtherHost:
		return absent("[submit]", &s.Place)
	case s.Resources.Tasks > 1 || s.Login != nil:
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "[submit] is not available with ntasks above 1, nor with --login", Hint: "leave it out"}
	case !s.Submit.Jobs():
		return nil
	case s.Profile.NodesMute && s.Clustered():
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "[submit] max_jobs: nodes of this site may not submit jobs (nodes_submit = false in the profile " + s.Profile.Name + ")",
			Hint: "leave max_jobs out, and submit the jobs yourself: berth submit --after ID"}
	}
	b := *s.Submit
	if b.Time == 0 {
		b.Time = s.Resources.Time
	}
	if b.Time == 0 {
		b.Time = childTime
	}
	if b.Memory == 0 {
		b.Memory = s.Resources.Memory
	}
	if b.GPUs == 0 {
		b.GPUs = s.Resources.GPUCount()
	}
	for _, p := range b.Partitions {
		if err := jobs.CheckText("[submit] partitions", p); err != nil {
			return err
		}
	}
	if can := s.Can(); len(b.Images) > 0 && !can.Layers && !can.ImageNames {
		return absent("[submit] images", &s.Place)
	}
	b.Images = slices.Clone(b.Images)
	for i := range b.Images {
		if err := e.settleChildImage(ctx, s, &b.Images[i], dry, offline); err != nil {
			what := fmt.Sprintf("[submit] images: %.200q", b.Images[i].Name)
			return &jobs.Error{Kind: jobs.KindOf(err), Msg: what, Err: err, Hint: jobs.HintOf(err)}
		}
	}
	s.Submit = &b
	return nil
}

// settleChildImage settles an image that a task of the job may name for a job of its own: it
// is here from then on, and what it is does not depend on what the task does.
func (e *Engine) settleChildImage(ctx context.Context, s *jobs.Spec, i *jobs.ChildImage, dry, offline bool) error {
	if err := jobs.CheckText("it", i.Name); err != nil {
		return err
	}
	switch {
	case s.Can().ImageNames:
		return e.settleNamedImage(ctx, s, i, dry, offline)
	case images.IsTagged(i.Name) || images.IsReference(i.Name):
	case !filepath.IsAbs(i.Name):
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "it is neither an absolute path nor a reference",
			Hint: "name the path of a SIF from / on, or a reference such as docker://debian:12"}
	}
	settled, err := images.Settle(i.Name)
	if err != nil {
		return err
	}
	of, at := jobs.Spec{}, settled
	if images.IsReference(settled) {
		at, err = e.settleReference(ctx, &of, settled, dry, offline)
	}
	if err == nil {
		err = e.settleFile(ctx, &of, at, dry)
	}
	if err != nil {
		return err
	}
	if of.ImageRef == "" {
		i.Name = settled // a path is compared by its components
	}
	i.Image, i.ImageRef, i.ImageDigest, i.ImageSum, i.ImageDir = of.Image, of.ImageRef, of.ImageDigest, of.ImageSum, of.ImageDir
	s.Notes = append(s.Notes, of.Notes...)
	return nil
}

// settleNamedImage is [Engine.settleChildImage] with a backend that takes names.
func (e *Engine) settleNamedImage(ctx context.Context, s *jobs.Spec, i *jobs.ChildImage, dry, offline bool) error {
	b, err := e.backend(s.Backend)
	if err != nil {
		return err
	}
	fetch, ok := b.(jobs.Fetcher)
	if !ok || s.Clustered() {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "the backend " + s.Backend + " has images on each node, and berth settles none of them at submit",
			Hint: "leave images out, or use --backend " + jobs.BackendOfClusters}
	}
	i.ImageRef = strings.TrimPrefix(i.Name, "docker://")
	if images.IsReference(i.ImageRef) {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the backend " + s.Backend + " cannot take it", Hint: "name one such as debian:12"}
	}
	// What cannot be an image of its own is the backend's to say.
	if _, err := b.Argv(jobs.Invocation{Name: "berth", Guest: "/", Place: jobs.Place{Image: i.ImageRef}}, nil); err != nil || dry {
		i.Image = i.ImageRef
		return err
	}
	i.Image, err = fetch.Fetch(ctx, i.ImageRef, offline)
	return err
}

// SubmitChild submits what the task of a job has asked for, see [jobs.Child], from a
// commit of its work tree; "" is that it has none. Where it runs, and what it may, is
// its parent's, and nothing that the task has said. It may be repeated.
func (e *Engine) SubmitChild(ctx context.Context, parent *jobs.Record, number int, from string) (*jobs.Record, error) {
	c, err := store.LoadChild(parent.Dir, number)
	if err != nil {
		return nil, err
	}
	if rec, err := e.Store.Load(c.Job); err == nil {
		return rec, nil
	}
	if why := store.ChildRefused(parent.Dir, number); why != "" { // its task was told so
		return nil, &jobs.Error{Kind: jobs.KindRejected, Msg: "it was refused before: " + why}
	}
	if store.Cancelled(parent.Dir) || jobs.StateOf(parent).Final() {
		return nil, &jobs.Error{Kind: jobs.KindRejected, Msg: "its parent is ending"}
	}
	s, err := e.childOf(&parent.Spec, &c)
	if err != nil {
		return nil, err
	}
	s.Created, s.User = e.Now().UTC(), identity().User
	s.Host, _ = os.Hostname()
	if s.Workspace != nil {
		s.Workspace.Base = from
		s.Workspace.Repo, s.Workspace.GitDir = store.ChildrenGit(parent.Dir), store.ChildrenGit(parent.Dir)
	}
	site, err := sitefile.Read()
	if err == nil {
		err = site.Hold(&s.Place, false)
	}
	if err == nil {
		err = checkSpec(s)
	}
	if err != nil {
		return nil, err
	}
	return e.Submit(ctx, s, jobs.Task{Prompt: c.Script})
}

// childOf is what a child has of its parent, and of what was asked for within bounds.
func (e *Engine) childOf(of *jobs.Spec, c *jobs.Child) (*jobs.Spec, error) {
	place := of.Place
	narrow, err := network.Narrow(&place, c.Network, c.Allow, jobs.NetworkOfJob(of.ID))
	if err != nil {
		return nil, err
	}
	place.Network, place.Level = narrow, narrow.Level(place.Level)
	// Keys and named overlays are the parent's while it runs.
	place.Credentials, place.Prices = nil, jobs.Prices{}
	place.Caps = jobs.Caps{Wall: of.Caps.Wall, Output: of.Caps.Output}
	if o := &place.Overlay; o.Name != "" {
		o.Name, o.Snapshot, o.Wait = "", "", 0
	}
	place.Overlay.Keep = ""
	place.Resources = c.Resources
	if c.Partition != "" {
		place.Slurm.Partition = c.Partition
	}
	place.Slurm.Extra = nil
	if stubs := batch.Of(of.Scheduler).Stubs(); stubs != nil {
		place.Slurm.Extra = stubs.Inherited(of.Slurm.Extra)
	}
	s := &jobs.Spec{ID: c.Job, Name: c.Name, Slug: jobs.Slug(c.Name), Command: c.Command, Place: place,
		Prompt: c.Script != "", PromptBytes: len(c.Script), ImageFrom: of.ImageFrom, ImageRef: of.ImageRef,
		ImageDigest: of.ImageDigest, ImageSum: of.ImageSum, ImageDir: of.ImageDir,
		Labels: of.Labels, Artifacts: of.Artifacts, Results: of.Results, After: c.After, Parent: of.ID, Number: c.Number}
	if err := e.otherImage(s, of, c.Image); err != nil {
		return nil, err
	}
	behindOthers(s)
	if of.Workspace != nil {
		w := *of.Workspace
		w.BaseRef, w.Branch = "", jobs.BranchName(s.Slug, s.ID)
		if len(c.Scope) > 0 {
			w.Scope = c.Scope
		}
		s.Workspace = &w
	}
	return s, nil
}

// otherImage gives a child the image of its parent's list that it has asked for, as it was
// when the parent was submitted. The layer over the parent's does not fit it: it gets an empty
// one, which is thrown away.
func (e *Engine) otherImage(s, of *jobs.Spec, name string) error {
	if name == "" {
		return nil
	}
	i := slices.IndexFunc(of.Submit.Images, func(i jobs.ChildImage) bool { return i.Name == name })
	if i < 0 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the image %.200q is none of those that are allowed", name)}
	}
	c := of.Submit.Images[i]
	s.Image, s.ImageFrom, s.ImageRef, s.ImageDigest, s.ImageSum, s.ImageDir = c.Image, "", c.ImageRef, c.ImageDigest, c.ImageSum, c.ImageDir
	if !s.Can().Layers {
		return nil
	}
	return e.ThrowAway(s)
}

// CancelChildren requests the end of the jobs that a job's task has submitted, of those
// with these numbers, or of all. What was refused, or has ended, is left alone.
func (e *Engine) CancelChildren(ctx context.Context, parent *jobs.Record, numbers []int, by string) error {
	all, err := store.LoadChildren(parent.Dir, nil)
	if err != nil {
		return err
	}
	var recs []*jobs.Record
	for _, c := range all {
		if len(numbers) > 0 && !slices.Contains(numbers, c.Number) {
			continue
		}
		if rec, err := e.Store.Load(c.Job); err == nil && !jobs.StateOf(rec).Final() {
			recs = append(recs, rec)
		}
	}
	if len(recs) == 0 {
		return nil
	}
	return e.Cancel(ctx, e.Reconcile(ctx, recs), by)
}

// endOrphans cancels those of the jobs whose parent has ended and wants them to end with
// it: its runner does that, unless it was killed before.
func (e *Engine) endOrphans(ctx context.Context, views []View) {
	var left []View
	for _, v := range views {
		if v.Spec.Parent == "" || v.Cancel != nil || v.State.Final() {
			continue
		}
		p, err := e.Store.Load(v.Spec.Parent)
		if err == nil && p.Spec.Submit != nil && p.Spec.Submit.EndWithParent && jobs.StateOf(p).Final() {
			left = append(left, v)
		}
	}
	if len(left) > 0 {
		_ = e.Cancel(ctx, left, endedWithParent) // who looks next tries again, and the wish is recorded
	}
}

// endedWithParent is who has cancelled a child, as people are shown it.
const endedWithParent = "berth, with its parent"

// childMain is `berth-node child PARENT NUMBER [COMMIT]`, which submits one, and
// `berth-node child --cancel PARENT [NUMBER...]`, with the state directory in BERTH_HOME.
func childMain(args []string, stderr io.Writer) int {
	fs := flag.NewFlagSet(jobs.VerbChild, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	end := fs.Bool("cancel", false, "")
	err := fs.Parse(args)
	args = fs.Args()
	var numbers []int
	from := ""
	if !*end && len(args) == 3 {
		args, from = args[:2], args[2]
	}
	for i, w := range args {
		n, nerr := strconv.Atoi(w)
		if i > 0 && nerr == nil && n > 0 {
			numbers = append(numbers, n)
		}
	}
	if err != nil || len(args) != len(numbers)+1 || !*end && len(numbers) != 1 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node child PARENT NUMBER [COMMIT] | --cancel PARENT [NUMBER...]")
		return jobs.CodeUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = followIDs(os.Getenv("BERTH_HOME"), args[:1], func(e *Engine, recs []*jobs.Record) error {
		if len(recs) != 1 {
			return nil // the error says why
		}
		if *end {
			by := endedWithParent
			if len(numbers) > 0 {
				by = "the task of job " + jobs.Short(recs[0].Spec.ID)
			}
			return e.CancelChildren(ctx, recs[0], numbers, by)
		}
		_, err := e.SubmitChild(ctx, recs[0], numbers[0], from)
		return err
	})
	if err == nil {
		return jobs.CodeOK
	}
	_, _ = fmt.Fprintln(stderr, jobs.Printable(err.Error()))
	return jobs.CodeOf(err)
}
