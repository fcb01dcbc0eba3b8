package cli

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"berth/internal/agents/adapters"
	"berth/internal/config"
	"berth/internal/config/profile"
	"berth/internal/queue/schedule"
	"berth/internal/sweep"
	"berth/jobs"
	"berth/jobs/store"
	"berth/templates"

	"github.com/spf13/cobra"
)

// completeFor bounds the search for one completion; the start of berth comes on top of
// it, and both together stay below 50 ms. Tests of what is found give it longer.
var completeFor = 30 * time.Millisecond

const (
	// completeMost is how many candidates a shell gets at most.
	completeMost = 200
	// completeJobs is how many jobs are, of those that begin so: as many as can be read in completeFor.
	completeJobs = 60
	// describedMost is how long a description is, in characters.
	describedMost = 60
)

// candidate is a word that a shell can complete to.
type candidate struct{ word, about string }

// lister finds the candidates of one kind, of which it may leave out those that do not begin so.
// What it cannot read it leaves out.
type lister func(ctx context.Context, a *app, cmd *cobra.Command, begun string) []candidate

// completedArgs are the kinds of the arguments of commands, by their path below berth;
// the last kind is that of all further ones if more is set.
var completedArgs = []struct {
	commands []string
	kind     lister
	more     bool
}{
	{[]string{"status", "wait", "rm", "usage"}, allJobs, true},
	{[]string{"cancel", "follow"}, openJobs, true},
	{[]string{"logs", "explain", "collect", "retry"}, allJobs, false},
	{[]string{"forward", "shell", "network show", "network allow"}, openJobs, false},
	{[]string{"review show", "review approve", "review reject", "review merge", "review diff", "review run",
		"review export", "review push"}, allJobs, false},
	{[]string{"env show", "env snapshot", "env restore", "env snapshots"}, environments, false},
	{[]string{"env stop", "env rm"}, environments, true},
	{[]string{"overlay show", "overlay check", "overlay grow", "overlay convert", "overlay snapshot", "overlay restore", "overlay fork", "overlay diff",
		"overlay export"}, namedOverlays, false},
	{[]string{"overlay rm"}, namedOverlays, true},
	{[]string{"schedule show", "schedule run", "schedule runs"}, schedules, false},
	{[]string{"schedule pause", "schedule resume", "schedule rm"}, schedules, true},
	{[]string{"agent show", "agent check"}, agentNames, false},
	{[]string{"template show", "template build", "template rm"}, templateNames, false},
	{[]string{"sweep status", "sweep ls", "sweep logs", "sweep tail", "sweep failures", "sweep collect", "sweep report", "sweep replay", "sweep resume",
		"sweep retry", "sweep add", "sweep tell", "sweep ask", "sweep pause", "sweep throttle", "sweep cancel", "sweep forget"}, sweeps, false},
	{[]string{"sweep compare"}, sweeps, true},
	{[]string{"image show"}, cachedImages, false},
	{[]string{"image verify", "image rm"}, cachedImages, true},
}

// completedFlags are the kinds of the values of flags, whichever command has them.
var completedFlags = map[string]lister{
	"env": environments, "overlay": namedOverlays, "image": cachedImages, "profile": siteProfiles, "partition": partitions,
	"job": openJobs, "agent": agentNames, "template": templateNames,
}

// isCompletion reports whether a shell asks for completions.
func isCompletion(word string) bool {
	return word == cobra.ShellCompRequestCmd || word == cobra.ShellCompNoDescRequestCmd
}

// addCompletions adds what the shell is told of arguments and values of flags.
func (a *app) addCompletions(c *cobra.Command) {
	path := strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
	for _, row := range completedArgs {
		if slices.Contains(row.commands, path) {
			c.ValidArgsFunction = a.completed(row.kind, row.more)
		}
	}
	for name, kind := range completedFlags {
		if c.Flags().Lookup(name) != nil {
			_ = c.RegisterFlagCompletionFunc(name, a.completed(kind, true)) // the flag exists and has none yet
		}
	}
	for _, sub := range c.Commands() {
		a.addCompletions(sub)
	}
}

// completed lets a shell wait for candidates no longer than completeFor. Where there is
// none, the shell offers files.
func (a *app) completed(list lister, more bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && !more {
			return nil, cobra.ShellCompDirectiveDefault
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeFor)
		defer cancel()
		a.verb = cmd
		found := make(chan []candidate, 1)
		go func() { found <- list(ctx, a, cmd, begun) }()
		select {
		case all := <-found:
			return completions(all, args, begun), cobra.ShellCompDirectiveKeepOrder
		case <-ctx.Done(): // this process ends at once, and the search with it
			return nil, cobra.ShellCompDirectiveDefault
		}
	}
}

// completions are those of the candidates that begin so and are not on the command line yet.
func completions(all []candidate, args []string, begun string) []cobra.Completion {
	var out []cobra.Completion
	for _, c := range all {
		if len(out) == completeMost || !strings.HasPrefix(c.word, begun) || slices.Contains(args, c.word) || !shellSafe(c.word) {
			continue
		}
		out = append(out, cobra.CompletionWithDesc(c.word, described(c.about)))
	}
	return out
}

// shellSafe reports whether a word needs no quoting in any shell: the scripts of completion
// expand some of what they are given.
func shellSafe(word string) bool {
	return word != "" && word[0] != '-' && !strings.ContainsFunc(word, func(r rune) bool { return r == ' ' || !harmless(r) })
}

// described is a text of a task's, without what a shell or a terminal could take for more
// than text.
func described(text string) string {
	clean := strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if !harmless(r) {
			return ' '
		}
		return r
	}, text)), " ")
	if runes := []rune(clean); len(runes) > describedMost {
		clean = string(runes[:describedMost])
	}
	return clean
}

// harmless are letters, digits and the marks that no shell expands.
func harmless(r rune) bool {
	return r != unicode.ReplacementChar && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(" ._-+:/@,=%", r))
}

// ledger is the store of the state directory; nothing is made.
func ledger() (*store.Store, bool) {
	h, err := config.Home()
	if err != nil {
		return nil, false
	}
	st, err := store.At(h)
	return st, err == nil
}

func allJobs(_ context.Context, _ *app, _ *cobra.Command, begun string) []candidate {
	return jobCandidates(begun, true)
}

func openJobs(_ context.Context, _ *app, _ *cobra.Command, begun string) []candidate {
	return jobCandidates(begun, false)
}

// jobCandidates are jobs, the newest first: no more records are read than are shown.
func jobCandidates(begun string, all bool) []candidate {
	st, ok := ledger()
	if !ok {
		return nil
	}
	recs, _, _ := st.Few(store.Few{Most: completeJobs, All: all, Newest: true,
		Want: func(id string) bool { return strings.HasPrefix(jobs.Short(id), begun) }})
	if !all {
		recs = slices.DeleteFunc(recs, func(r *jobs.Record) bool { return jobs.StateOf(r).Final() })
	}
	out := make([]candidate, 0, len(recs))
	for _, r := range recs {
		out = append(out, candidate{jobs.Short(r.Spec.ID), string(jobs.StateOf(r)) + " " + r.Spec.Name})
	}
	return out
}

func environments(context.Context, *app, *cobra.Command, string) []candidate {
	st, ok := ledger()
	if !ok {
		return nil
	}
	specs, _ := st.ListEnvs()
	out := make([]candidate, len(specs))
	for i, s := range specs {
		out[i] = candidate{s.Name, s.Backend + " " + s.Image}
	}
	return out
}

// sweeps are those of this machine and of login hosts, by their names.
func sweeps(context.Context, *app, *cobra.Command, string) []candidate {
	root, err := sweepRoot()
	if err != nil {
		return nil
	}
	var out []candidate
	known := map[string]bool{}
	add := func(name, about string) {
		if !known[name] {
			known[name] = true
			out = append(out, candidate{name, about})
		}
	}
	far, _, _ := sweep.ListFar(root)
	for _, f := range far {
		add(f.Name, "sweep on "+f.Login.Host)
	}
	here, _ := sweep.List(root)
	for _, s := range here {
		add(s.Spec.Name, jobs.Plural(s.Spec.Tasks, "task"))
	}
	return out
}

func namedOverlays(_ context.Context, a *app, _ *cobra.Command, _ string) []candidate {
	set, _, err := a.overlays()
	if err != nil {
		return nil
	}
	infos, _ := set.List()
	out := make([]candidate, len(infos))
	for i, o := range infos {
		out[i].word = o.Name
		if o.Mark != nil {
			out[i].about = o.Mark.Driver
		}
	}
	return out
}

func cachedImages(_ context.Context, a *app, cmd *cobra.Command, _ string) []candidate {
	if _, err := a.config(cmd); err != nil {
		return nil
	}
	st, ok := ledger()
	if !ok {
		return nil
	}
	cache, err := a.cache(st.Home())
	if err != nil {
		return nil
	}
	list, _ := cache.List()
	var out []candidate
	for _, img := range list {
		for _, n := range img.Names {
			out = append(out, candidate{n.Reference, mib(img.Size)})
		}
	}
	return out
}

func schedules(context.Context, *app, *cobra.Command, string) []candidate {
	st, ok := ledger()
	if !ok {
		return nil
	}
	list, _ := schedule.At(st.Home()).List()
	out := make([]candidate, len(list))
	for i, s := range list {
		out[i] = candidate{s.Name, scheduleWhen(&s.Schedule)}
	}
	return out
}

func agentNames(context.Context, *app, *cobra.Command, string) []candidate {
	list, _ := adapters.All(config.AgentsDir())
	out := make([]candidate, len(list))
	for i, ad := range list {
		out[i] = candidate{ad.Name, ad.Description}
	}
	return out
}

func templateNames(context.Context, *app, *cobra.Command, string) []candidate {
	list, _ := templates.Workspaces(config.TemplatesDir())
	out := make([]candidate, len(list))
	for i, w := range list {
		out[i] = candidate{w.Name, w.Description}
	}
	return out
}

func siteProfiles(context.Context, *app, *cobra.Command, string) []candidate {
	var out []candidate
	for _, name := range profile.Names(config.ProfileDirs()...) {
		out = append(out, candidate{word: name})
	}
	return out
}

func partitions(_ context.Context, a *app, cmd *cobra.Command, _ string) []candidate {
	if _, err := a.config(cmd); err != nil {
		return nil
	}
	e, err := a.planner()
	if err != nil {
		return nil
	}
	var out []candidate
	for _, p := range e.Partitions() {
		out = append(out, candidate{word: p})
	}
	return out
}
