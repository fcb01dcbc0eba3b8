package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"berth/internal/sweep"
	"berth/internal/sys/disk"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// farRequest is a verb of sweeps that a berth on another machine has this one run: a line of JSON on the standard
// input, with the contents of the files behind it, one after the other. Then comes nothing, until farInterrupt for
// a ctrl-C, or the end.
type farRequest struct {
	Version int       `json:"version"`
	Words   []farWord `json:"words"` // behind "berth sweep"
	ID      string    `json:"id"`    // of the sweep that is submitted, or any other
	Place   *farPlace `json:"place,omitempty"`
	// Values are variables, "NAME=value", that tasks take from the environment there. They are on no command line.
	Values []string  `json:"values,omitempty"`
	OutTTY bool      `json:"out_tty"`
	ErrTTY bool      `json:"err_tty"`
	Width  int       `json:"width"`
	Files  []farFile `json:"files,omitempty"`
	Stdin  int       `json:"stdin,omitempty"` // which of the files is the standard input, from 1 on
	// Outputs is how many files the verb writes for the other side. Where there are some, the answer on stdout is
	// a [farAnswer], with stdout itself and these files behind it.
	Outputs int `json:"outputs,omitempty"`

	begun func() // the sweep is submitted, or not
}

// farWord is a word of the command line: a text, and behind it the path of a file of the request (from 1 on), or of
// an output.
type farWord struct {
	Text   string `json:"text"`
	File   int    `json:"file,omitempty"`
	Output int    `json:"output,omitempty"`
}

// farPlace is where the workers run, as the command line and the configuration there say it.
type farPlace struct {
	Place     jobs.Place `json:"place"`
	Reference string     `json:"reference,omitempty"`
	// ImageLater is that the image is not sent, as only a plan is asked for.
	ImageLater bool `json:"image_later,omitempty"`
}

// farFile has a name below the request's directory.
type farFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// farAnswer has the sizes of stdout and of each output; -1 is that the file was not written.
type farAnswer struct {
	Sizes []int64 `json:"sizes"`
}

const (
	farVersion   = 1
	farInterrupt = 'c'
	mostFarHead  = 64 << 20 // bytes of the line
)

func (a *app) sweepThereCmd() *cobra.Command {
	return &cobra.Command{
		Use: "there", Short: "run a verb of sweeps for a berth on another machine", Hidden: true, Args: cobra.NoArgs,
		Long: `Run a verb of sweeps for a berth that reaches this machine with --login. It reads the request
on the standard input; berth itself starts it.
` + exitHelp + `that of the verb; 2 the standard input is no request, 5.`,
		Example: "  berth sweep status lr",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.serveFar(cmd.Context()) },
	}
}

// serveFar reads a request and runs it in this process.
func (a *app) serveFar(ctx context.Context) error {
	in := bufio.NewReader(a.stdin)
	req, err := readFarRequest(in)
	if err != nil {
		return err
	}
	root, err := sweepRoot()
	if err != nil {
		return err
	}
	dir, err := sweep.Scratch(root, req.ID)
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "keep what was sent", Err: err}
	}
	defer func() { _ = disk.RemoveTree(dir) }()
	switch err := req.keep(dir, in); {
	case errors.Is(err, io.EOF):
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "the request ended before it was whole"}
	case err != nil:
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "keep what was sent", Err: err, Hint: "is there room? df -h " + dir}
	}
	b := newApp(bytes.NewReader(nil), a.stdout, a.stderr)
	b.tty, b.errTTY, b.columns, b.given = req.OutTTY, req.ErrTTY, req.Width, req
	if req.Stdin > 0 {
		f, err := os.Open(filepath.Join(dir, req.Files[req.Stdin-1].Name))
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		b.stdin = f
	}
	var out *os.File
	if req.Outputs > 0 {
		if out, err = os.OpenFile(filepath.Join(dir, outputName(0)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
		defer func() { _ = out.Close() }()
		b.stdout = out
	}
	code := b.runFar(ctx, req.args(dir), in)
	if out != nil {
		if err := sendOutputs(a.stdout, dir, req.Outputs); err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "send what was written", Err: err}
		}
	}
	return exitCode(code)
}

// looks tells whether a verb changes nothing: it ends with who has asked.
func looks(verb string) bool {
	return slices.Contains([]string{"status", "ls", "logs", "tail", "failures", "collect", "report", "compare", sideVerb, "ask", "replay"}, verb)
}

// heedless drops what cannot be written: who reads it is gone, and the verb is not done.
type heedless struct{ io.Writer }

func (h heedless) Write(p []byte) (int, error) {
	_, _ = h.Writer.Write(p)
	return len(p), nil
}

// runFar runs the words. The end of the input is that the other side is gone: what changes a sweep goes on to its end, a
// sweep that is being submitted is submitted all the same, and what looks or watches ends.
func (a *app) runFar(ctx context.Context, args []string, in *bufio.Reader) int {
	// Else the first note to who is gone would end this process in the middle of a submission.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := make(chan struct{})
	a.given.begun = sync.OnceFunc(func() { close(begun) })
	verb := args[1]
	if !looks(verb) {
		a.stdout = heedless{a.stdout}
	}
	go func() {
		b, err := in.ReadByte()
		switch {
		case err == nil && b == farInterrupt, looks(verb):
		case verb == "run" || verb == "submit":
			<-begun
		default:
			return
		}
		cancel()
	}()
	root := newRoot(a, args)
	a.args = args
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	return a.report(a.commandLine(err))
}

func readFarRequest(in *bufio.Reader) (*farRequest, error) {
	wrong := func(err error) error {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the standard input has no request of another berth", Err: err,
			Hint: "berth itself starts this: berth help laptop"}
	}
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if line = append(line, part...); len(line) > mostFarHead {
			return nil, wrong(errors.New("it is too long"))
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, wrong(err)
		}
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	req := &farRequest{}
	if err := d.Decode(req); err != nil {
		return nil, wrong(err)
	}
	bad := req.Version != farVersion || !jobs.ValidID(req.ID) || len(req.Words) == 0 || req.Stdin < 0 || req.Stdin > len(req.Files) ||
		req.Outputs < 0 || req.Outputs > 2
	for _, w := range req.Words {
		bad = bad || w.File < 0 || w.File > len(req.Files) || w.Output < 0 || w.Output > req.Outputs
	}
	for _, f := range req.Files {
		bad = bad || !filepath.IsLocal(f.Name) || f.Size < 0
	}
	if bad {
		return nil, wrong(errors.New("it makes no sense"))
	}
	return req, nil
}

// keep writes the files below dir, and nowhere else.
func (r *farRequest) keep(dir string, in io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, f := range r.Files {
		if err := root.MkdirAll(filepath.Dir(f.Name), 0o700); err != nil {
			return err
		}
		w, err := root.OpenFile(f.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.CopyN(w, in, f.Size)
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
	}
	return nil
}

// args are the words behind "berth".
func (r *farRequest) args(dir string) []string {
	args := []string{"sweep"}
	for _, w := range r.Words {
		text := w.Text
		switch {
		case w.File > 0:
			text += filepath.Join(dir, r.Files[w.File-1].Name)
		case w.Output > 0:
			text += filepath.Join(dir, outputName(w.Output))
		}
		args = append(args, text)
	}
	return args
}

// getenv is the environment of who has asked, over that of this machine.
func (r *farRequest) getenv(name string) (string, bool) {
	if v, ok := r.value(name); ok {
		return v, true
	}
	return os.LookupEnv(name)
}

// value is a variable that was sent.
func (r *farRequest) value(name string) (string, bool) {
	for _, kv := range r.Values {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// outputName is the file of an output below the request's directory; 0 is stdout. No file of a request has it.
func outputName(n int) string { return fmt.Sprintf(".output-%d", n) }

// sendOutputs writes a [farAnswer] and what belongs to it.
func sendOutputs(w io.Writer, dir string, outputs int) error {
	var answer farAnswer
	var parts []io.Reader
	for n := range outputs + 1 {
		f, err := os.Open(filepath.Join(dir, outputName(n)))
		if err != nil {
			answer.Sizes = append(answer.Sizes, -1)
			continue
		}
		defer func() { _ = f.Close() }()
		fi, err := f.Stat()
		if err != nil {
			return err
		}
		answer.Sizes = append(answer.Sizes, fi.Size())
		parts = append(parts, io.LimitReader(f, fi.Size()))
	}
	head, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, io.MultiReader(append([]io.Reader{bytes.NewReader(append(head, '\n'))}, parts...)...))
	return err
}
