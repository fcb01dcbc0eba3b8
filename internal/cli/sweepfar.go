package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/backends/ssh"
	"berth/engine"
	"berth/internal/sweep"
	"berth/internal/sweep/define"
	"berth/internal/sweep/look"
	"berth/internal/sys/ids"
	"berth/internal/sys/termsafe"
	"berth/jobs"
	"berth/slurm"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// farCall is a verb that a berth on a login host runs.
type farCall struct {
	farRequest
	login   jobs.SSHSpec
	sources []*os.File // of the files
	outputs []string   // where they are written here
	raw     bool       // what comes may drive the terminal: the user has said so
	known   bool       // what was said there names the sweep: it was made
}

func (c *farCall) close() {
	for _, f := range c.sources {
		_ = f.Close()
	}
}

// send adds a file of this machine, which has that name there, and returns its number.
func (c *farCall) send(path, name string) (int, error) {
	f, err := os.Open(path)
	if err != nil {
		kind := jobs.KindUsage
		if errors.Is(err, os.ErrNotExist) {
			kind = jobs.KindNotFound
		}
		return 0, &jobs.Error{Kind: kind, Msg: "read what is sent to " + c.login.Host, Err: err}
	}
	return c.sendFile(f, name)
}

func (c *farCall) sendFile(f *os.File, name string) (int, error) {
	c.sources = append(c.sources, f)
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		return 0, &jobs.Error{Kind: jobs.KindUsage, Msg: "read " + f.Name(), Err: err}
	}
	c.Files = append(c.Files, farFile{Name: name, Size: fi.Size()})
	return len(c.Files), nil
}

// sendStdin keeps the standard input in a file without a name, and sends that.
func (c *farCall) sendStdin(in io.Reader) (*os.File, error) {
	f, err := os.CreateTemp("", "berth-rows-*")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name())
	_, err = io.Copy(f, in)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	n, serr := c.sendFile(f, "stdin")
	if err = errors.Join(err, serr); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "keep the standard input", Err: err}
	}
	c.Stdin = n
	return f, nil
}

// notFar are flags that say how a sweep is reached from here, and where its workers run: they go there as a place.
var notFar = append([]string{"watch", "login", "ssh-key", "ssh-option", "scheduler", "target", "profile"}, sweepKeys...)

// flags adds the flags of the command line.
func (c *farCall) flags(cmd *cobra.Command) (err error) {
	submits := cmd.Flags().Lookup("login") != nil
	cmd.Flags().Visit(func(f *pflag.Flag) {
		text := "--" + f.Name + "="
		v := f.Value.String()
		list, many := f.Value.(pflag.SliceValue)
		switch {
		case err != nil, f.Name == "watch", submits && f.Name != "retry" && slices.Contains(notFar, f.Name):
		case many:
			for _, v := range list.GetSlice() {
				c.Words = append(c.Words, farWord{Text: text + v})
			}
		case v != "-" && v != "" && (f.Name == "csv" || f.Name == "jsonl" || f.Name == "output"):
			c.outputs = append(c.outputs, v)
			c.Words = append(c.Words, farWord{Text: text, Output: len(c.outputs)})
		case f.Name == "rows" && v != "-" && v != "":
			var n int
			n, err = c.send(v, "rows/"+filepath.Base(v))
			c.Words = append(c.Words, farWord{Text: text, File: n})
		default:
			c.raw = c.raw || f.Name == "raw"
			c.Words = append(c.Words, farWord{Text: text + v})
		}
	})
	c.Outputs = len(c.outputs)
	return err
}

// definition adds a sweep.toml, and the file of rows that it names, which stands beside it there as here; "-" is in,
// unless that is kept.
func (c *farCall) definition(file string, in io.Reader) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return &jobs.Error{Kind: jobs.KindNotFound, Msg: "read the sweep", Err: err}
	}
	d, err := define.Read(file, text)
	if err != nil {
		return err
	}
	n, err := c.send(file, filepath.Base(file))
	if err != nil {
		return err
	}
	c.Words = append(c.Words, farWord{File: n})
	path, said := d.RowsFile()
	switch {
	case path == "-" && c.Stdin == 0:
		_, err := c.sendStdin(in)
		return err
	case path == "" || path == "-":
		return nil
	}
	if !filepath.IsLocal(said) || strings.HasPrefix(said, "~") || filepath.Clean(said) == filepath.Base(file) {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("rows = %q in %s: what is sent to %s stands beside the file, or below its directory",
			jobs.Printable(said), file, c.login.Host), Hint: "put it there, and write rows = \"" + filepath.Base(path) + "\""}
	}
	_, err = c.send(path, filepath.Clean(said))
	return err
}

// reach has a verb run where the records of its sweep are.
func (a *app) reach(c *cobra.Command) {
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		far, err := a.farOf(cmd, args)
		switch {
		case err != nil:
			return err
		case far == nil:
			return run(cmd, args)
		}
		return a.callVerb(cmd, far, args)
	}
}

// fileOf tells which argument of a verb is a sweep.toml; -1 is none.
func fileOf(verb string, args []string) int {
	switch {
	case verb == "add" && len(args) == 2, verb == "resume" && len(args) == 2:
		return 1
	case verb == "resume" && len(args) == 1 && filepath.Ext(args[0]) == ".toml":
		return 0
	}
	return -1
}

// farOf is the sweep of a login host that a verb is about; nil is one of this machine, or none that is known.
func (a *app) farOf(cmd *cobra.Command, args []string) (*sweep.Far, error) {
	words := args[:min(len(args), 1)]
	switch verb := cmd.Name(); {
	case verb == "ls" && len(args) == 0 && !cmd.Flags().Changed("where"):
		return nil, nil
	case verb == "compare":
		words = args
	case fileOf(verb, args) == 0:
		d, _, err := (&sweepOptions{}).definition(a, cmd, args)
		if err != nil {
			return nil, err
		}
		words = []string{d.Name}
	case len(args) == 0:
		words = []string{""}
	case strings.TrimSpace(args[0]) == "":
		return nil, nil
	}
	root, err := sweepRoot()
	if err != nil {
		return nil, err
	}
	var all []*sweep.Far
	for _, w := range words {
		if _, far, err := sweep.Locate(root, w); err == nil {
			all = append(all, far)
		}
	}
	if len(all) == 2 && all[0] != all[1] && (all[0] == nil || all[1] == nil || fmt.Sprint(all[0].Login) != fmt.Sprint(all[1].Login)) {
		return nil, nil // on different machines, and compared on this one
	}
	if len(all) == len(words) && len(all) > 0 {
		return all[0], nil
	}
	return nil, nil
}

// callVerb runs a verb about a sweep where its records are.
func (a *app) callVerb(cmd *cobra.Command, far *sweep.Far, args []string) error {
	id, err := ids.New()
	if err != nil {
		return err
	}
	c := &farCall{login: far.Login, farRequest: farRequest{ID: id}}
	defer c.close()
	verb := cmd.Name()
	c.Words = append(c.Words, farWord{Text: verb})
	if err := c.flags(cmd); err != nil {
		return err
	}
	file := fileOf(verb, args)
	if rows, _ := cmd.Flags().GetString("rows"); rows == "-" || verb == "tell" {
		if _, err := c.sendStdin(a.stdin); err != nil {
			return err
		}
	}
	if file < 0 { // else what is before it counts
		c.Words = append(c.Words, farWord{Text: "--"})
	}
	if len(args) == 0 || file == 0 {
		c.Words = append(c.Words, farWord{Text: jobs.Short(far.ID)})
	}
	for i, w := range args {
		switch {
		case i == file:
			if err := c.definition(w, a.stdin); err != nil {
				return err
			}
			continue
		case i == 0:
			w = jobs.Short(far.ID)
		case verb == "compare":
			root, err := sweepRoot()
			if err != nil {
				return err
			}
			_, other, err := sweep.Locate(root, w)
			if err != nil {
				return err
			}
			w = jobs.Short(other.ID)
		}
		c.Words = append(c.Words, farWord{Text: w})
	}
	if slices.Contains([]string{"resume", "retry", "add", "tell"}, verb) { // these may begin workers
		for _, name := range far.EnvNames {
			if v, ok := os.LookupEnv(name); ok {
				c.Values = append(c.Values, name+"="+v)
			}
		}
	}
	code, err := a.call(cmd.Context(), c)
	if err != nil {
		return err
	}
	return a.endedThere(cmd.Context(), far, code)
}

// endedThere is the exit code of a verb about a sweep there. One that the host does not have is to be forgotten here.
func (a *app) endedThere(ctx context.Context, far *sweep.Far, code int) error {
	if code == jobs.CodeNotFound {
		if there, err := a.isThere(ctx, far); err == nil && !there {
			a.say("sweep %s is recorded here, and %s has no such sweep: it was removed there, or never arrived", far.Name, far.Login.Host)
			a.say("hint: berth sweep forget %s takes it off the list here", jobs.Short(far.ID))
		}
	}
	return exitCode(code)
}

// farText shows what a login host has said, on a terminal without what could drive it. A line that is written again
// is cleared first.
func (a *app) farText(w io.Writer, tty, raw bool) io.Writer {
	if !tty || raw {
		return w
	}
	return termsafe.New(overPassing{cleared{w}, a})
}

type cleared struct{ io.Writer }

func (c cleared) Write(p []byte) (int, error) {
	_, err := c.Writer.Write(bytes.ReplaceAll(bytes.ReplaceAll(p, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\r\x1b[K")))
	return len(p), err
}

// call runs it, shows what it says, and returns its exit code.
func (a *app) call(ctx context.Context, c *farCall) (int, error) {
	stderr := a.farText(a.stderr, a.errTTY, c.raw)
	defer unpaint(stderr)
	stdout := a.farText(a.stdout, a.tty, c.raw)
	defer unpaint(stdout)
	c.OutTTY, c.ErrTTY, c.Width = a.tty, a.errTTY, a.width()
	if c.Outputs == 0 {
		return a.callInto(ctx, c, stdout, stderr)
	}
	r, w := io.Pipe()
	taken := make(chan error, 1)
	go func() {
		err := c.take(r, stdout)
		_, _ = io.Copy(io.Discard, r)
		taken <- err
	}()
	code, err := a.callInto(ctx, c, w, stderr)
	_ = w.Close()
	if terr := <-taken; err == nil {
		err = terr
	}
	return code, err
}

// take reads a [farAnswer], and writes the files here, each of them whole or not at all.
func (c *farCall) take(from io.Reader, stdout io.Writer) error {
	in := bufio.NewReader(from)
	line, err := in.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(line) == 0 {
		return nil // it has failed before
	}
	var answer farAnswer
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	if err != nil || len(answer.Sizes) != len(c.outputs)+1 {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: c.login.Host + " gave an answer that makes no sense", Err: err}
	}
	for i, size := range answer.Sizes {
		fill := func(w io.Writer) error {
			_, err := io.CopyN(w, in, size)
			return err
		}
		switch {
		case size < 0:
		case i == 0:
			err = fill(stdout)
		default:
			err = look.WriteFile(c.outputs[i-1], fill)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wholeVersion is what `berth version` says before the system. A program that was built without a version may be
// any: then it is "".
func wholeVersion() string {
	if v := buildVersion(); v.version != "devel" {
		return "berth " + v.version
	}
	return ""
}

// leaveTime is how long a verb there may take to end after ctrl-C, and lookTime where it only looks, or watches.
const (
	leaveTime = 10 * time.Second
	lookTime  = 3 * time.Second
)

// farStream is what a program there says. It passes that on until it is shut.
type farStream struct {
	id string // the short one of the sweep

	mu   sync.Mutex
	w    io.Writer
	end  bool
	seen bool
	last []byte // that may be the beginning of a name
}

func (s *farStream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end {
		return len(p), nil
	}
	if !s.seen {
		// "sweep NAME (ID)", "ID" and a line end, or JSON: so the sweep is named when it is made. A file's name has
		// something else behind it.
		s.last = append(s.last, p...)
		for _, behind := range []string{")", "\n", `"`} {
			s.seen = s.seen || bytes.Contains(s.last, []byte(s.id+behind))
		}
		s.last = bytes.Clone(s.last[max(len(s.last)-len(s.id), 0):])
	}
	return s.w.Write(p)
}

// saw tells whether the sweep is there, by what was said.
func (s *farStream) saw() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func (s *farStream) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = true
}

// notBegun is an error before the host had the whole of a request.
type notBegun struct{ err error }

func (n *notBegun) Error() string { return n.err.Error() }
func (n *notBegun) Unwrap() error { return n.err }

// prepare makes sure that a berth is there, and makes the request's first line.
func (a *app) prepare(ctx context.Context, c *farCall) (h *ssh.Host, berth ssh.Whole, head []byte, err error) {
	if h, err = (ssh.Backend{}).Host(c.login); err != nil {
		return nil, berth, nil, err
	}
	if a.errTTY && isTerminal(a.stdin) {
		if err := h.Connect(ctx, true); err != nil {
			return nil, berth, nil, err
		}
	}
	if berth, err = h.Whole(ctx, wholeVersion(), a.progress); err != nil {
		return nil, berth, nil, err
	}
	c.Version = farVersion
	head, err = json.Marshal(c.farRequest)
	return h, berth, head, err
}

// write sends the request: its first line, and the files.
func (c *farCall) write(w io.Writer, head []byte) error {
	if _, err := w.Write(append(head, '\n')); err != nil {
		return err
	}
	for i, f := range c.sources {
		n, err := io.Copy(w, io.NewSectionReader(f, 0, c.Files[i].Size))
		if err == nil && n < c.Files[i].Size {
			err = &jobs.Error{Kind: jobs.KindUsage, Msg: f.Name() + " has changed while it was sent", Hint: "say it again when the file is whole"}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// callInto runs it with these streams. The request is sent when the program runs there: an error before is that it
// has nothing of it, and would read none later.
func (a *app) callInto(ctx context.Context, c *farCall, stdout, stderr io.Writer) (int, error) {
	h, berth, head, err := a.prepare(ctx, c)
	if err != nil {
		return 0, &notBegun{err}
	}
	out, errs := &farStream{w: stdout, id: jobs.Short(c.ID)}, &farStream{w: stderr, id: jobs.Short(c.ID)}
	defer func() { c.known = out.saw() || errs.saw() }()
	more, wish := io.Pipe()
	defer func() { _ = more.Close() }()
	own, kill := context.WithCancel(context.WithoutCancel(ctx))
	waits := context.AfterFunc(ctx, kill)
	p, err := h.Start(own, jobs.Cmd{Argv: berth.Words(slurm.FindOnLogin, "sweep", "there"), Stdin: more, Stdout: out, Stderr: errs})
	if !waits() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return 0, &notBegun{err}
	}
	sent := make(chan error, 1)
	whole := make(chan struct{})
	go func() {
		err := c.write(wish, head)
		if sent <- err; err == nil {
			close(whole)
			return
		}
		_ = wish.CloseWithError(err) // what is there ends without the rest
	}()
	type outcome struct {
		exit jobs.Exit
		err  error
	}
	waited := make(chan outcome, 1)
	go func() {
		exit, err := p.Wait()
		waited <- outcome{exit, err}
	}()
	var got outcome
	select {
	case got = <-waited:
	case <-ctx.Done():
		select {
		case <-whole:
			go func() { _, _ = wish.Write([]byte{farInterrupt}) }()
		default:
			_ = wish.CloseWithError(context.Cause(ctx))
		}
		most := leaveTime
		if out.saw() || errs.saw() || looks(c.Words[0].Text) {
			most = lookTime
		}
		select {
		case got = <-waited:
		case <-time.After(most):
			// Nothing is killed there: what writes goes on to its end, and the end of the input ends what looks.
			// Here ssh would wait for a dead link, and outlive this process.
			got.err = errors.New("the connection is dead, or the host very slow")
			out.shut()
			errs.shut()
			ssh.Leave(p)
		}
	}
	exit, err := got.exit, got.err
	_ = more.Close()
	var changed *jobs.Error
	switch unsent := <-sent; {
	case errors.As(unsent, &changed):
		return 0, &notBegun{unsent}
	case unsent != nil && ctx.Err() != nil:
		return 0, &notBegun{context.Cause(ctx)}
	case unsent != nil && err != nil:
		return 0, &notBegun{err}
	case ctx.Err() != nil && (err != nil || exit.Signal != 0):
		return 0, &jobs.Error{Kind: jobs.KindInfra, Msg: c.login.Host + " did not answer ctrl-C", Err: err}
	case err != nil:
		return 0, err
	}
	return exit.Code, nil
}

// isThere asks the login host whether it has a sweep.
func (a *app) isThere(ctx context.Context, far *sweep.Far) (bool, error) {
	c := &farCall{login: far.Login, farRequest: farRequest{ID: far.ID, Words: []farWord{{Text: "status"}, {Text: "--json"}, {Text: far.ID}}}}
	code, err := a.callInto(ctx, c, io.Discard, io.Discard)
	if err == nil && code != jobs.CodeOK && code != jobs.CodeNotFound {
		err = fmt.Errorf("%s has answered with exit code %d", far.Login.Host, code)
	}
	return code == jobs.CodeOK, err
}

// sendSweep has a sweep made on the login host that its task names, and run or submitted there.
func (a *app) sendSweep(cmd *cobra.Command, o *sweepOptions, d *define.Sweep, t jobs.Task, name string, args []string) error {
	if err := a.refuseFar(&t); err != nil {
		return err
	}
	id, err := ids.New()
	if err != nil {
		return err
	}
	login := *t.Login
	c := &farCall{login: login, farRequest: farRequest{ID: id, Words: []farWord{{Text: cmd.Name()}}}}
	defer c.close()
	if err := c.flags(cmd); err != nil {
		return err
	}
	if path, _ := d.RowsFile(); path == "-" {
		f, err := c.sendStdin(a.stdin)
		if err != nil {
			return err
		}
		d.Rows(f)
	}
	if o.rows == "" {
		if err := c.definition(args[0], a.stdin); err != nil {
			return err
		}
	} else {
		c.Words = append(c.Words, farWord{Text: "--"})
		for _, w := range args {
			c.Words = append(c.Words, farWord{Text: w})
		}
	}
	// Every row is looked at before anything is sent.
	tasks := 0
	d.Most = o.most
	d.Worker, d.GPUs, d.Steps = boundsThere(&t)
	if err := d.Tasks(nil, func(define.Task) error { tasks++; return nil }); err != nil {
		return err
	}
	e, err := a.engine()
	if err != nil {
		return err
	}
	far := sweep.Far{ID: id, Name: name, Login: login, Tasks: tasks, Created: a.now().UTC()}
	for _, kv := range t.Env {
		if !strings.Contains(kv, "=") {
			far.EnvNames = append(far.EnvNames, kv)
		}
	}
	if !o.plan {
		if c.Values, err = e.SweepValues(cmd.Context(), far.EnvNames, nil); err != nil {
			return err
		}
	}
	later := false
	if farBackend(&t).Layers && (t.Template != "" || !strings.Contains(t.Image, "://") && (t.Image != "" || t.Profile.Image != "")) {
		cfg, err := a.config(cmd)
		if err != nil {
			return err
		}
		var notes []string
		if t.Image, later, notes, err = e.ImageThere(cmd.Context(), t, engine.Choice{Offline: cfg.Offline(), Auto: cfg.Auto()}, o.plan); err != nil {
			return err
		}
		a.notes(notes)
		t.Reference, t.Template = "", ""
	}
	t.Login, t.Target = nil, ""
	c.Place = &farPlace{Place: t.Place, Reference: t.Reference, ImageLater: later}
	if o.plan {
		code, err := a.call(cmd.Context(), c)
		if err != nil {
			return err
		}
		return exitCode(code)
	}
	return a.submitFar(cmd, c, far)
}

// boundsThere are what no task may ask of a worker for more than, as far as it is said here, and whether tasks may have
// ranks, see [sweep.Spec.Bounds]. What is not said here may be in the configuration there, where it is checked again.
func boundsThere(t *jobs.Task) (worker jobs.Resources, gpus int, steps bool) {
	worker = t.Resources
	worker.Memory = cmp.Or(worker.Memory, math.MaxInt64)
	unsaid := t.Backend == "" || t.Backend == jobs.BackendAuto
	return worker, cmp.Or(sweep.GPUs(&t.Place), math.MaxInt), unsaid || t.Can().Bare
}

// farBackend is what the backend there can do. Where none is said it is chosen there, and is that of clusters for what
// counts here.
func farBackend(t *jobs.Task) jobs.Capabilities {
	if t.Backend == "" || t.Backend == jobs.BackendAuto {
		return jobs.CapabilitiesOf(jobs.BackendOfClusters)
	}
	return t.Can()
}

// refuseFar refuses what stands on this machine and is not sent.
func (a *app) refuseFar(t *jobs.Task) error {
	refuse := func(what, hint string) error {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: what + ", and the sweep would run behind " + t.Login.Host, Hint: hint}
	}
	switch {
	case t.Scheduler != "" && t.Scheduler != "auto" && !jobs.IsCluster(t.Scheduler):
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the scheduler " + t.Scheduler + " has no login host",
			Hint: "leave --scheduler out, or leave --login out"}
	case farBackend(t).Service():
		return refuse("sandboxes of the backend "+t.Backend+" are looked after from this machine", "leave --login out, or name another --backend")
	case len(t.Credentials) > 0:
		return refuse("the key of the credential "+t.Credentials[0].Name+" is in the configuration here",
			"configure it there, and run berth sweep there; or each task as a job: berth submit")
	case t.Template != "" && !farBackend(t).Layers:
		return refuse("the template "+t.Template+" is a SIF, which the backend "+t.Backend+" does not take",
			"leave --template out, or name another --backend")
	}
	return nil
}

// submitFar records the sweep here, and has it made there.
func (a *app) submitFar(cmd *cobra.Command, c *farCall, far sweep.Far) error {
	ctx := cmd.Context()
	root, err := sweepRoot()
	if err != nil {
		return err
	}
	if err := sweep.RecordFar(root, far); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "record the sweep", Err: err}
	}
	code, err := a.call(ctx, c)
	var never *notBegun
	switch {
	case err == nil && (code == jobs.CodeOK || c.known):
		return exitCode(code)
	case errors.As(err, &never):
		return errors.Join(err, far.Forget(root))
	case c.known:
		return a.leftFar(ctx, &far, err)
	}
	// It may be there, or not.
	most := time.Minute
	if ctx.Err() != nil {
		most = leaveTime
	}
	late, stop := context.WithTimeout(context.WithoutCancel(ctx), most)
	defer stop()
	there, asked := a.isThere(late, &far)
	for n := 0; n < 3 && err != nil && ctx.Err() == nil && (asked != nil || !there); n++ { // what was sent may be read still
		time.Sleep(2 * time.Second)
		there, asked = a.isThere(late, &far)
	}
	short := jobs.Short(far.ID)
	switch {
	case err == nil && asked == nil && !there:
		_ = far.Forget(root)
		return exitCode(code)
	case err == nil:
		return exitCode(code)
	case asked == nil && there:
		return a.leftFar(ctx, &far, err)
	case asked == nil:
		return &jobs.Error{Kind: jobs.KindUnclear, Msg: fmt.Sprintf("%s has no sweep %s (%s) yet", far.Login.Host, far.Name, short), Err: err,
			Hint: "a command there that was sent whole may make it still: berth sweep status " + short +
				" asks again; if it is not there then, berth sweep forget " + short + ", and submit it again"}
	}
	return &jobs.Error{Kind: jobs.KindUnclear, Msg: fmt.Sprintf("sweep %s (%s) may or may not be on %s", far.Name, short, far.Login.Host), Err: err,
		Hint: "berth sweep status " + short + " asks again; if it is not there, berth sweep forget " + short + ", and submit it again"}
}

// leftFar says that a sweep goes on there, after ctrl-C or an error of the connection.
func (a *app) leftFar(ctx context.Context, far *sweep.Far, err error) error {
	short := jobs.Short(far.ID)
	if ctx.Err() != nil {
		a.say("left sweep %s running on %s", far.Name, far.Login.Host)
		a.say("to look at it: berth sweep status %s    to end it: berth sweep cancel %s", short, short)
		return exitCode(jobs.CodeInterrupted)
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("%v; sweep %s (%s) is on %s, and goes on", err, far.Name, short, far.Login.Host),
		Hint: "look at it with berth sweep status " + short + "; berth sweep resume " + short + " submits workers that are missing"}
}

func (a *app) sweepForgetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "forget SWEEP", Short: "take a sweep of a login host off the list here",
		Long: `Remove what is recorded here of a sweep that was submitted with --login. The sweep itself, its
jobs and its results stay where they are. The host is not asked: it may be gone.
` + sweepExit,
		Example: "  berth sweep forget lr",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			root, err := sweepRoot()
			if err != nil {
				return err
			}
			if strings.TrimSpace(args[0]) == "" {
				return usage("the name of a sweep is empty")
			}
			here, far, err := sweep.Locate(root, args[0])
			if err != nil {
				return err
			}
			if far == nil {
				return &jobs.Error{Kind: jobs.KindUsage,
					Msg:  fmt.Sprintf("sweep %s is of this machine, and its records are in %s", here.Spec.Name, here.Dir),
					Hint: "forget is for sweeps that were submitted with --login"}
			}
			if err := far.Forget(root); err != nil {
				return &jobs.Error{Kind: jobs.KindInfra, Msg: "remove the record", Err: err}
			}
			a.say("sweep %s is not on the list here any more; what %s has of it stays there, as sweep %s", far.Name, far.Login.Host, far.ID)
			return nil
		},
	}
}
