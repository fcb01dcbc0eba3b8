//go:build !berthnode

package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/internal/agents"
	"berth/internal/network/record"
	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

const (
	// mostReported bounds each list of a report.
	mostReported = 500
	// mostPatch is how much of a patch is looked through.
	mostPatch = 256 << 20
	// longBase64 is how much base64 on a line is suspicious.
	longBase64 = 1 << 10
)

// NetworkUse is what the current attempt did with its network: as its record has it, or
// as far as it is known here. nil is that nothing was judged, or that it cannot be read.
func NetworkUse(r *jobs.Record) *jobs.NetworkUse {
	a := r.Current()
	switch {
	case a == nil:
		return nil
	case a.Exit != nil && a.Exit.NetworkUse != nil:
		record.Clean(a.Exit.NetworkUse)
		return a.Exit.NetworkUse
	}
	f, err := record.Read(filepath.Join(a.Dir, store.FileNetwork))
	if err != nil {
		return nil
	}
	return f.Use()
}

// AgentUses is what the agents of attempts that left no last word have done, as they run or
// were killed: by their transcripts, by the number of the attempt. An error is of what
// could not be read to its end.
func AgentUses(r *jobs.Record) (out map[int]*jobs.AgentUse, err error) {
	if r.Spec.Agent == nil {
		return nil, nil
	}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if a.Exit != nil || a.Claim == nil {
			continue
		}
		use, uerr := agents.UseOf(filepath.Join(a.Dir, store.FileTranscript), r.Spec.Agent, r.Spec.Prices)
		if err = errors.Join(err, uerr); use == nil {
			continue
		}
		if out == nil {
			out = map[int]*jobs.AgentUse{}
		}
		out[a.N] = use
	}
	return out, err
}

// Report tells what the current attempt of a job created, changed, ran and contacted, and
// what of that looks suspicious, see [jobs.Suspicions]. It reads what was recorded outside
// of the container, and believes nothing that the task says but what its agent says it ran.
func (e *Engine) Report(ctx context.Context, v View) (*jobs.Report, error) {
	a := v.Current()
	if a == nil {
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "job " + jobs.Short(v.Spec.ID) + " has no attempt"}
	}
	r := reporter{Report: jobs.Report{Version: 1, Job: v.Spec.ID, Attempt: a.N, State: v.State, AsOf: e.Now().UTC(),
		Ran: []string{}, Created: []string{}, Changed: []string{}, Deleted: []string{},
		Artifacts: []string{}, Container: []string{}, LeftRunning: []string{},
		Reached: []jobs.NetworkName{}, Refused: []jobs.NetworkName{}, Suspicious: []jobs.Suspicion{}, More: map[string]int{}, Unknown: []string{}}}
	r.ran(&v.Spec, a)
	r.files(&v.Spec, a)
	r.patch("", filepath.Join(a.Dir, workspace.DiffFile))
	for _, w := range v.Spec.Further {
		r.patch(w.Name+": ", filepath.Join(jobs.ResultDir(a.Dir, w.Name), workspace.DiffFile))
	}
	r.container(ctx, e.Store, &v.Spec, a)
	r.network(v.Record)
	r.left(a)
	return &r.Report, nil
}

// reporter makes a report.
type reporter struct{ jobs.Report }

func (r *reporter) add(what string, list *[]string, text string) {
	if len(*list) >= mostReported {
		r.More[what]++
		return
	}
	*list = append(*list, jobs.Printable(text))
}

func (r *reporter) suspect(kind, where string) {
	if len(r.Suspicious) >= mostReported {
		r.More["suspicious"]++
		return
	}
	r.Suspicious = append(r.Suspicious, jobs.Suspicion{Kind: kind, Where: jobs.Printable(where), Why: jobs.ReasonOf(kind)})
}

func (r *reporter) unknown(format string, args ...any) {
	r.Unknown = append(r.Unknown, jobs.Printable(fmt.Sprintf(format, args...)))
}

// ran lists the task's command, and the tools that its agent has called.
func (r *reporter) ran(s *jobs.Spec, a *jobs.Attempt) {
	command := s.Command.Shell
	if command == "" {
		command = strings.Join(s.Command.Argv, " ")
	}
	r.add("ran", &r.Ran, command)
	f, err := disk.OpenRegular(filepath.Join(a.Dir, store.FileTranscript))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.unknown("what the command ran itself: only the tools of an agent that berth knows are recorded")
		return
	case err == nil:
		defer f.Close()
		err = agents.ReadTranscript(f, func(ev agents.Event) error {
			if ev.Kind == agents.KindTool {
				r.add("ran", &r.Ran, strings.TrimSpace(ev.Tool+" "+ev.Arg))
			}
			return nil
		})
	}
	if err != nil {
		r.unknown("what its agent ran: %v", err)
	}
}

// left lists the processes that were still there when the command had ended.
func (r *reporter) left(a *jobs.Attempt) {
	if a.Exit == nil || a.Exit.Left == nil {
		r.unknown("processes that it left running: they are told when its command has ended by itself")
		return
	}
	// Many of one name, as of a fork bomb, are one thing to look at.
	times := map[string]int{}
	for _, name := range a.Exit.Left.Names {
		r.add("left_running", &r.LeftRunning, name)
		times[name]++
	}
	for _, name := range a.Exit.Left.Names {
		switch n := times[name]; {
		case n == 1:
			r.suspect(jobs.SuspectLeft, name)
		case n > 1:
			r.suspect(jobs.SuspectLeft, fmt.Sprintf("%s (%d processes)", name, n))
		}
		delete(times, name)
	}
	if n := a.Exit.Left.Count - len(a.Exit.Left.Names); n > 0 {
		r.More["left_running"] += n
	}
}

// files lists what changed on the branch, by the manifest.
func (r *reporter) files(s *jobs.Spec, a *jobs.Attempt) {
	if a.Exit != nil {
		for _, name := range a.Exit.Artifacts {
			r.add("artifacts", &r.Artifacts, name)
		}
		if n := a.Exit.ArtifactFiles - len(a.Exit.Artifacts); n > 0 {
			r.More["artifacts"] += n
		}
		for _, o := range a.Exit.LeftOut {
			r.unknown("%d paths of the %s that did not come back: %s", o.Paths, o.From(), o.Why)
		}
	}
	for _, w := range s.Workspaces() {
		r.changes(a, w.Name)
	}
}

// changes lists what changed in one workspace; the name of a further one stands before its
// paths.
func (r *reporter) changes(a *jobs.Attempt, name string) {
	shown := func(p any) string {
		return strings.TrimPrefix(fmt.Sprintf("%s: %s", name, p), ": ")
	}
	m, err := workspace.Manifest(jobs.ResultDir(a.Dir, name))
	if err != nil || m == nil {
		why := "the attempt has not ended"
		if err != nil {
			why = err.Error()
		} else if a.Over() {
			why = "no result was made of its files"
		}
		r.unknown("what changed in the repository: %s", why)
		return
	}
	for i := range m.Files {
		f := &m.Files[i]
		path := shown(f.Path)
		switch f.Status {
		case workspace.Added:
			r.add("created", &r.Created, path)
		case workspace.Deleted:
			r.add("deleted", &r.Deleted, path)
		case workspace.Renamed:
			r.add("changed", &r.Changed, fmt.Sprintf("%s (was %s)", path, f.OldPath))
		case workspace.Modified, workspace.TypeChanged:
			r.add("changed", &r.Changed, path)
		}
		control, link, executable := f.Suspicious()
		if control {
			r.suspect(jobs.SuspectControl, path)
		}
		if link {
			r.suspect(jobs.SuspectLink, fmt.Sprintf("%s -> %s", path, f.Target))
		}
		if executable {
			r.suspect(jobs.SuspectExecutable, path)
		}
	}
	for _, p := range m.OutOfScope {
		r.suspect(jobs.SuspectScope, shown(p))
	}
}

// container lists what a place that was to be kept has over its image.
func (r *reporter) container(ctx context.Context, st *store.Store, s *jobs.Spec, a *jobs.Attempt) {
	if !s.Can().Layers {
		r.changesInside(s, a)
		return
	}
	if a.Exit == nil || a.Exit.Overlay == nil {
		return
	}
	set := overlay.Set{Dir: st.Overlays(), Templates: st.Templates(), On: run.Local{}, Say: func(string, ...any) {}}
	kept, err := set.ListKept()
	if err != nil {
		r.unknown("what changed in the container: %v", err)
		return
	}
	at := slices.IndexFunc(kept, func(i overlay.Info) bool {
		return i.Mark != nil && i.Mark.Kept != nil && i.Mark.Kept.Attempt == a.Info.ID
	})
	if at < 0 {
		r.unknown("what changed in the container: its writable layer was not kept for it alone, as --keep does")
		return
	}
	changes, err := set.Diff(ctx, kept[at].Name, "")
	if err != nil {
		r.unknown("what changed in the container: %v", err)
		return
	}
	for _, c := range changes {
		r.add("container", &r.Container, string(c.Kind)+" "+c.Path)
		if c.Setuid {
			r.suspect(jobs.SuspectSetuid, c.Path)
		}
	}
}

// changesInside lists what the backend has recorded.
func (r *reporter) changesInside(s *jobs.Spec, a *jobs.Attempt) {
	c, err := store.LoadChanges(a.Dir)
	switch {
	case err != nil:
		r.unknown("what changed in the container: %v", err)
	case c != nil:
		for _, text := range c.Changes {
			r.add("container", &r.Container, text)
		}
		if c.More > 0 {
			r.More["container"] += c.More
		}
		r.unknown("which files of the container are setuid: the backend %s tells no modes", s.Backend)
	case a.Exit != nil && a.Exit.KeptPlace != nil:
		r.unknown("what changed in the container: it is in %s", a.Exit.KeptPlace.Named())
	case s.Can().Here() && !s.Clustered():
		r.unknown("what changed in the container: it was not kept, as --keep does")
	}
}

func (r *reporter) network(rec *jobs.Record) {
	u := NetworkUse(rec)
	switch n := rec.Spec.Reaches(); {
	case u != nil:
	case n.Open():
		r.unknown("what it contacted: its network is open, and only a list is judged (--network allow)")
		return
	default:
		return
	}
	r.Reached, r.Refused = append(r.Reached, u.Allowed...), append(r.Refused, u.Refused...)
	for what, n := range map[string]int{"reached": u.MoreAllowed, "refused": u.MoreRefused} {
		if n > 0 {
			r.More[what] = n
		}
	}
	for _, n := range u.Refused {
		r.suspect(jobs.SuspectRefused, n.Name)
	}
}

// patch looks for long base64 in the lines that a patch adds.
// patch looks at a patch; of goes before the names of its files.
func (r *reporter) patch(of, path string) {
	f, err := disk.OpenRegular(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.unknown("what the added lines hold: %v", err)
		}
		return
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.Size() > mostPatch {
		r.unknown("what the added lines hold, behind the first %s of the patch", jobs.Bytes(mostPatch).Rough())
	}
	if err := base64Lines(io.LimitReader(f, mostPatch), func(file string, line int) {
		r.suspect(jobs.SuspectBase64, fmt.Sprintf("%s%s:%d", of, file, line))
	}); err != nil {
		r.unknown("what the added lines hold: %v", err)
	}
}

// base64Lines finds added lines of a patch of git's with more than 1 KiB of base64. Which
// lines are a file's follows from the counts in its hunks: what a line says is the task's.
func base64Lines(patch io.Reader, found func(file string, line int)) error {
	in := bufio.NewReaderSize(patch, 64<<10)
	file, at, old, fresh := "", 0, 0, 0
	for {
		head, err := in.ReadSlice('\n')
		whole := !errors.Is(err, bufio.ErrBufferFull)
		if errors.Is(err, io.EOF) && len(head) == 0 {
			return nil
		}
		if err != nil && whole && !errors.Is(err, io.EOF) {
			return err
		}
		added := old+fresh > 0 && len(head) > 0 && head[0] == '+'
		switch {
		case len(head) == 0:
		case old+fresh > 0:
			switch head[0] {
			case '+':
				fresh--
			case '-':
				old--
			case ' ', '\n':
				old, fresh, at = old-1, fresh-1, at+1
			}
		case bytes.HasPrefix(head, []byte("+++ ")):
			file, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(head[4:])), "b/"), "\t")
		case bytes.HasPrefix(head, []byte("@@ ")):
			old, fresh, at = hunk(string(head))
		}
		var s span
		s.look(head[min(1, len(head)):])
		for !whole && err != nil && !errors.Is(err, io.EOF) {
			head, err = in.ReadSlice('\n')
			s.look(head)
			whole = !errors.Is(err, bufio.ErrBufferFull)
		}
		if added {
			if s.long {
				found(file, at)
			}
			at++
		}
	}
}

// hunk reads "@@ -3,7 +3,8 @@": how many lines of the old file and of the new one follow,
// and the number of the first.
func hunk(line string) (old, fresh, at int) {
	count := func(word string) (first, n int) {
		begin, rest, more := strings.Cut(strings.TrimLeft(word, "-+"), ",")
		first, _ = strconv.Atoi(begin)
		if n = 1; more {
			n, _ = strconv.Atoi(rest)
		}
		return first, n
	}
	if words := strings.Fields(line); len(words) > 2 {
		_, old = count(words[1])
		at, fresh = count(words[2])
	}
	return old, fresh, at
}

// span is how much base64 stands in a row on a line.
type span struct {
	n                   int
	upper, lower, digit bool
	long                bool
}

func (s *span) look(b []byte) {
	for _, c := range b {
		switch {
		case c >= 'A' && c <= 'Z':
			s.upper = true
		case c >= 'a' && c <= 'z':
			s.lower = true
		case c >= '0' && c <= '9':
			s.digit = true
		case c == '+' || c == '/' || c == '=' || c == '-' || c == '_':
		default:
			*s = span{long: s.long}
			continue
		}
		s.n++
		s.long = s.long || s.n > longBase64 && s.upper && s.lower && s.digit
	}
}
