package runner

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/link/wire"
	"berth/internal/node/batch"
	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"
)

// childVerbs are those of the program berth inside that are of jobs which the task submits.
var childVerbs = []string{"submit", "run", "ps", "status", "wait", "logs", "cancel"}

const childHelp = `  berth submit [--name N] [--time 10m] [--cpus 2] [--memory 4GiB] [--gpus 1] [--partition P] [--after 1] -- COMMAND...
                               have a job submitted, in this image, from this work tree; prints its number
      [--network none] [--network allow --allow NAME]... [--scope PATTERN]...
                               with less of the network, or to change less, than this task
      [--image IMAGE]          in another image, of those that "images" below names
  berth run ... -- COMMAND...  the same; waits for its end, and prints its output. The exit code is as of
      [--exit-code]            berth wait, but 0 where nothing was changed; or the command's own
  berth wait N...              wait until they have ended; the exit code says how: 0 well, 1 it failed,
                               7 nothing was changed, 9 a change outside of the scope, 124 its time was up
  berth ps                     your jobs; berth status N is one of them
  berth logs [--stderr] N      what it has printed until now
  berth cancel N...
`

// help is what there is to say of them.
func (k *children) help() string {
	if k == nil {
		return ""
	}
	var names []string
	for _, s := range batch.AllStubs() {
		names = append(names, s.Name)
	}
	return childHelp + "What they leave comes to $BERTH_JOBS/N when they have ended: stdout, stderr, result.patch, artifacts.\n" +
		"Bounds: " + k.r.spec.Submit.Bounds() + ".\nThere are stubs, too: " + strings.Join(names, ", ") + ".\n"
}

// Bounds of an answer.
const (
	maxShown   = 512 << 10        // bytes of an output of a job
	mostHeld   = 8                // requests that are held while they wait; others come again
	heldFor    = 10 * time.Second // each
	maxAsWords = 4096             // words of a request
)

// stub answers what was asked by a stub of a scheduler's program, as that would.
func (k *children) stub(ctx context.Context, m wire.AskMessage) wire.AskAnswer {
	stubs := batch.Stubs(m.Stub)
	if k == nil || stubs == nil {
		return wire.AskAnswer{Code: jobs.CodeConfig, Err: wire.Text(fmt.Sprintf("berth: error: a task has no %.40q\n", m.Stub))}
	}
	answer := func(n int, bare bool, err error) wire.AskAnswer {
		out, text := stubs.Says(m.Stub, n, bare, err)
		a := wire.AskAnswer{Out: wire.Text(out), Err: wire.Text(text)}
		if err != nil {
			a.Code = jobs.CodeTaskFailed
		}
		return a
	}
	w, err := jobs.Wish{}, error(nil)
	if len(m.Words) > maxAsWords {
		err = &jobs.Error{Kind: jobs.KindUsage, Msg: "there are too many arguments"}
	} else {
		w, err = stubs.Wish(m.Stub, wire.Strings(m.Words), string(m.Script))
	}
	if err != nil {
		return answer(0, false, err)
	}
	switch w.Verb {
	case jobs.WishList:
		rows, err := k.rows(w.Jobs, false)
		if err != nil {
			return answer(0, false, err)
		}
		return wire.AskAnswer{Out: wire.Text(stubs.Queue(rows, w.Bare))}
	case jobs.WishCancel:
		if err := k.cancel(ctx, w.Jobs); err != nil {
			return answer(0, false, err)
		}
		return wire.AskAnswer{}
	}
	c, notes, err := k.submit(ctx, stubs, w, string(m.Dir))
	a := answer(c.Number, w.Bare, err)
	for _, n := range notes {
		a.Err += wire.Text(m.Stub + ": warning: " + jobs.Printable(n) + "\n")
	}
	if err == nil && w.Waits {
		words := []string{"wait", waitQuiet}
		if w.Shows {
			words = append(words, waitShows)
		}
		a.Again = wire.Texts(append(words, strconv.Itoa(c.Number)))
	}
	return a
}

// What berth wait is told by the programs inside that wait for what they have submitted.
const (
	waitQuiet  = "--quiet"  // the code is the command's own, and nothing is said of the job
	waitRan    = "--ran"    // as of berth run: a job that changed nothing is no other end
	waitShows  = "--output" // print what it has printed
	runOwnCode = "exit-code"
)

// verb answers one of [childVerbs].
func (k *children) verb(ctx context.Context, verb string, words []string, dir string) (wire.AskAnswer, error) {
	if len(words) > maxAsWords {
		return wire.AskAnswer{}, &jobs.Error{Kind: jobs.KindUsage, Msg: "there are too many arguments"}
	}
	fs := flag.NewFlagSet("berth "+verb, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	parse := func(least int) error {
		err := fs.Parse(words)
		if err == nil && fs.NArg() < least {
			err = fmt.Errorf("berth %s needs the number of a job", verb)
		}
		if err != nil {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%.200s", err.Error()), Hint: "berth help"}
		}
		return nil
	}
	switch verb {
	case "submit", "run":
		own := false
		if verb == "run" {
			fs.BoolVar(&own, runOwnCode, false, "")
		}
		w, err := wish(fs, parse)
		if err != nil {
			return wire.AskAnswer{}, err
		}
		c, notes, err := k.submit(ctx, nil, w, dir)
		if err != nil {
			return wire.AskAnswer{}, err
		}
		a := wire.AskAnswer{}
		for _, n := range notes {
			a.Err += wire.Text("berth: warning: " + jobs.Printable(n) + "\n")
		}
		if verb == "run" {
			how := waitRan
			if own {
				how = waitQuiet
			}
			a.Again = wire.Texts([]string{"wait", how, waitShows, strconv.Itoa(c.Number)})
		} else {
			a.Out = wire.Text(fmt.Sprintln(c.Number))
		}
		return a, nil
	case "ps":
		if err := parse(0); err != nil {
			return wire.AskAnswer{}, err
		}
		rows, err := k.rows(fs.Args(), true)
		if err != nil {
			return wire.AskAnswer{}, err
		}
		var b strings.Builder
		for _, r := range rows {
			fmt.Fprintf(&b, "%d\t%s\t%s\t%s\n", r.Number, r.State, r.Ran.Truncate(time.Second), jobs.Printable(r.Name))
		}
		return wire.AskAnswer{Out: wire.Text(b.String())}, nil
	case "cancel":
		if err := parse(1); err != nil {
			return wire.AskAnswer{}, err
		}
		return wire.AskAnswer{}, k.cancel(ctx, fs.Args())
	case "logs":
		return k.logs(fs, parse)
	case "status":
		if err := parse(1); err != nil {
			return wire.AskAnswer{}, err
		}
		list, err := k.named(fs.Args())
		var b strings.Builder
		for _, c := range list {
			b.WriteString(k.line(&c))
		}
		return wire.AskAnswer{Out: wire.Text(b.String())}, err
	}
	return k.wait(ctx, fs, parse)
}

// wish reads what berth submit takes.
func wish(fs *flag.FlagSet, parse func(int) error) (w jobs.Wish, err error) {
	name, long, memory := fs.String("name", "", ""), fs.String("time", "", ""), fs.String("memory", "", "")
	cpus, gpus := fs.Int("cpus", 0, ""), fs.String("gpus", "", "")
	partition, after := fs.String("partition", "", ""), fs.String("after", "", "")
	var network, image string
	var allow, scope []string
	fs.StringVar(&network, "network", "", "")
	fs.StringVar(&image, "image", "", "")
	for to, name := range map[*[]string]string{&allow: "allow", &scope: "scope"} {
		fs.Func(name, "", func(v string) error { *to = append(*to, v); return nil })
	}
	if err := parse(0); err != nil {
		return w, err
	}
	bad := func(err error) (jobs.Wish, error) {
		return w, &jobs.Error{Kind: jobs.KindUsage, Msg: err.Error(), Hint: "berth help"}
	}
	w = jobs.Wish{Name: *name, Command: jobs.Words(fs.Args()), Partition: *partition, Resources: jobs.Resources{CPUs: *cpus, GPUs: *gpus},
		Network: network, Allow: allow, Scope: scope, Image: image}
	if *long != "" {
		if w.Resources.Time, err = jobs.ParseDuration(*long); err != nil {
			return bad(err)
		}
	}
	if *memory != "" {
		if w.Resources.Memory, err = jobs.ParseBytes(*memory); err != nil {
			return bad(err)
		}
	}
	if *cpus < 0 || *cpus > 1<<20 {
		return bad(fmt.Errorf("%d CPUs are no number from 1", *cpus))
	}
	for _, text := range slices.Concat([]string{*gpus, *partition, network, image}, allow, scope, fs.Args()) {
		if err := jobs.CheckText("an argument", strings.NewReplacer("\n", "", "\t", "").Replace(text)); err != nil {
			return bad(err)
		}
	}
	if *after == "" {
		return w, nil
	}
	list, err := jobs.ParseAfter([]string{*after})
	for _, a := range list {
		w.After = append(w.After, jobs.ChildAfter{Child: a.Job, Need: a.Need})
	}
	return w, err
}

// rows lists children; all are those that have ended, too.
func (k *children) rows(words []string, all bool) ([]jobs.ChildRow, error) {
	list, err := k.named(words)
	if len(words) == 0 && err == nil {
		list, err = k.load()
	}
	if err != nil {
		return nil, err
	}
	var out []jobs.ChildRow
	for _, c := range list {
		state, rec := k.state(&c)
		if state.Final() && !all {
			continue
		}
		row := jobs.ChildRow{Number: c.Number, Name: c.Name, User: k.r.spec.User, State: state,
			Partition: cmp.Or(c.Partition, k.r.spec.Slurm.Partition)} // its parent's, as long as it names none
		if rec != nil && rec.Current() != nil && rec.Current().Claim != nil {
			a := rec.Current()
			row.Node = a.Claim.Node
			row.Ran = time.Since(a.Claim.Time)
			if a.Exit != nil {
				row.Ran = a.Exit.Ended.Sub(a.Claim.Time)
			}
			row.Ran = max(row.Ran, 0)
		}
		out = append(out, row)
	}
	return out, nil
}

func (k *children) line(c *jobs.Child) string {
	s := k.status(c)
	text := fmt.Sprintf("job %d (%s) %s", c.Number, jobs.Short(c.Job), s.State)
	if s.Reason != "" {
		text += ": " + jobs.Printable(s.Reason)
	}
	return text + "\n"
}

// cancel asks for the end of some.
func (k *children) cancel(ctx context.Context, words []string) error {
	list, err := k.named(words)
	if err != nil {
		return err
	}
	argv := []string{jobs.VerbChild, "--cancel", k.r.spec.ID}
	for _, c := range list {
		argv = append(argv, fmt.Sprint(c.Number))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), childTimeout)
	defer cancel()
	return said(k.r.callClient(ctx, argv...))
}

// output is the end of what a child has printed.
func (k *children) output(c *jobs.Child, file string) string {
	_, rec := k.state(c)
	if rec == nil || rec.Current() == nil {
		return ""
	}
	f, err := disk.OpenRegular(filepath.Join(rec.Current().Dir, file))
	if err != nil {
		return "" // it has printed nothing
	}
	defer func() { _ = f.Close() }()
	before := ""
	if fi, err := f.Stat(); err == nil && fi.Size() > maxShown {
		before = fmt.Sprintf("... the last %d bytes; when it has ended, all of it is in $BERTH_JOBS/%d/%s\n", maxShown, c.Number, file)
		_, _ = f.Seek(-maxShown, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, maxShown))
	return before + string(b)
}

func (k *children) logs(fs *flag.FlagSet, parse func(int) error) (wire.AskAnswer, error) {
	other := fs.Bool("stderr", false, "")
	if err := parse(1); err != nil {
		return wire.AskAnswer{}, err
	}
	list, err := k.named(fs.Args())
	if err != nil || len(list) != 1 {
		if err == nil {
			err = &jobs.Error{Kind: jobs.KindUsage, Msg: "berth logs takes one job", Hint: "berth help"}
		}
		return wire.AskAnswer{}, err
	}
	if *other {
		return wire.AskAnswer{Out: wire.Text(k.output(&list[0], store.FileStderr))}, nil
	}
	return wire.AskAnswer{Out: wire.Text(k.output(&list[0], store.FileStdout))}, nil
}

// wait answers when children have ended and their results are inside, or has the
// program ask again: a request that is held keeps a place of those that there are, also
// when the program has long been ended.
func (k *children) wait(ctx context.Context, fs *flag.FlagSet, parse func(int) error) (wire.AskAnswer, error) {
	flagged := func(word string) *bool { return fs.Bool(strings.TrimLeft(word, "-"), false, "") }
	quiet, ran, shows := flagged(waitQuiet), flagged(waitRan), flagged(waitShows)
	if err := parse(1); err != nil {
		return wire.AskAnswer{}, err
	}
	list, err := k.named(fs.Args())
	if err != nil {
		return wire.AskAnswer{}, err
	}
	if !k.hold(ctx, list) {
		words := []string{"wait"}
		for word, said := range map[string]bool{waitQuiet: *quiet, waitRan: *ran, waitShows: *shows} {
			if said {
				words = append(words, word)
			}
		}
		return wire.AskAnswer{Again: wire.Texts(append(words, fs.Args()...))}, nil
	}
	var a wire.AskAnswer
	for _, c := range list {
		s := k.status(&c)
		code := s.Code
		if *quiet && s.Exit != nil && s.Exit.Started && s.State != jobs.StateCancelled {
			code = s.Exit.Code // as of the command itself
		}
		if *ran && code == jobs.CodeNoChanges {
			code = jobs.CodeOK
		}
		if a.Code == 0 {
			a.Code = code
		}
		if *shows && len(list) == 1 {
			a.Out, a.Err = wire.Text(k.output(&c, store.FileStdout)), wire.Text(k.output(&c, store.FileStderr))
		}
		if !*quiet && (!*ran || code != jobs.CodeOK) || s.Exit == nil {
			a.Err += wire.Text(k.line(&c))
		}
	}
	return a, nil
}

// hold waits a little until all of them are back, and reports whether they are.
func (k *children) hold(ctx context.Context, list []jobs.Child) bool {
	held := k.held.Add(1)
	defer k.held.Add(-1)
	until := time.NewTimer(heldFor)
	defer until.Stop()
	for {
		k.mu.Lock()
		changed := k.changed
		missing := slices.ContainsFunc(list, func(c jobs.Child) bool { return !k.back[c.Number] })
		k.mu.Unlock()
		switch {
		case !missing:
			return true
		case held > mostHeld:
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-until.C:
			return false
		case <-changed:
		}
	}
}
