package replica

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"berth/internal/images"
	"berth/internal/link/transfer"
	"berth/internal/node/nodebin"
	"berth/internal/sys/pattern"
	"berth/internal/sys/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// far is the side on the cluster.
type far struct {
	stdin  io.Reader
	stdout io.Writer
	getenv func(string) string
	git    *workspace.Git
	follow func(ctx context.Context, home string, ids []string) error
}

// faultPrefix begins the line of the standard error that tells of a failure.
const faultPrefix = "berth-mirror: "

// Main is `berth-node mirror VERB ...` on a login node: one execution for one
// question. A failure is one line on stderr, and the exit code that goes with
// its kind.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return Serve(args, stdin, stdout, stderr, os.Getenv, followHere)
}

// Serve is [Main] with an environment, and with the function that takes the next
// step of jobs there.
func Serve(args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string,
	follow func(ctx context.Context, home string, ids []string) error,
) int {
	f := &far{stdin: stdin, stdout: stdout, getenv: getenv, git: workspace.New(run.Local{}), follow: follow}
	err := f.do(context.Background(), args)
	if err == nil {
		return jobs.CodeOK
	}
	b, merr := json.Marshal(faultOf(err))
	if merr != nil {
		b = []byte(merr.Error())
	}
	_, _ = fmt.Fprintf(stderr, "%s%s\n", faultPrefix, b)
	return jobs.CodeOf(err)
}

func (f *far) do(ctx context.Context, args []string) error {
	usage := &jobs.Error{Kind: jobs.KindUsage, Msg: "usage: berth-node mirror survey|put|round|artifacts|image|remove ..."}
	if len(args) == 0 {
		return usage
	}
	fs := flag.NewFlagSet(Verb, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	home := fs.String("home", "", "the state directory")
	job := fs.String("job", "", "a job")
	sum := fs.String("sum", "", "SHA-256 of an image")
	size := fs.Int64("size", 0, "its size")
	if err := fs.Parse(args[1:]); err != nil || fs.NArg() > 0 {
		return usage
	}
	switch args[0] {
	case verbSurvey:
		return f.survey(ctx)
	case verbPut:
		return f.put(ctx)
	case verbRound:
		return f.round(ctx)
	case verbArtifacts:
		return f.artifacts(ctx, *home, *job)
	case verbImage:
		return f.image(*home, *sum, *size)
	case verbRemove:
		return f.remove(*home, *job)
	}
	return usage
}

// home is the state directory of this machine's user, as berth itself finds it.
func (f *far) home() (string, error) {
	if h := f.getenv("BERTH_HOME"); h != "" {
		return h, nil
	}
	if h := f.getenv("XDG_STATE_HOME"); filepath.IsAbs(h) {
		return filepath.Join(h, "berth"), nil
	}
	if h := f.getenv("HOME"); filepath.IsAbs(h) {
		return filepath.Join(h, ".local", "state", "berth"), nil
	}
	return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "there is no place for the state: HOME is not set there",
		Hint: "set BERTH_HOME for the user's logins there"}
}

func (f *far) survey(ctx context.Context) error {
	var q Question
	if err := json.NewDecoder(io.LimitReader(f.stdin, 1<<20)).Decode(&q); err != nil {
		return fmt.Errorf("read the question: %w", err)
	}
	h, err := f.home()
	if err != nil {
		return err
	}
	st, err := store.Open(h)
	if err != nil {
		return err
	}
	// Nodes may mount it under the real name only; and what is checked below is
	// what is used.
	if h, err = filepath.EvalSymlinks(st.Home()); err != nil {
		return err
	}
	if st, err = store.Open(h); err != nil {
		return err
	}
	g := Survey{
		Facts:       Facts{Version: version, Home: h, Identity: f.identity(), UID: os.Getuid(), GID: os.Getgid()},
		Directories: overlay.TakesDirectories(st.Overlays()),
	}
	// The program that nodes start is this one, put where they see it.
	if g.Node, err = nodebin.Self(st.Bin()); err != nil {
		return err
	}
	if q.Image != "" {
		g.Image = look(ctx, h, q.Image)
	}
	if q.Overlay != "" {
		if err := overlay.CheckName(q.Overlay); err != nil {
			return err
		}
		if g.Mark, err = overlay.ReadMark(filepath.Join(st.Overlays(), q.Overlay)); err != nil {
			return err
		}
	}
	if q.Copy != "" {
		dir, err := copyDir(st.Home(), q.Copy)
		if err != nil {
			return err
		}
		if g.Tips, err = f.git.Tips(ctx, dir); err != nil {
			return err
		}
	}
	return json.NewEncoder(f.stdout).Encode(g)
}

// look tells how an image stands here.
func look(ctx context.Context, home, path string) *ImageFound {
	found := &ImageFound{}
	id, err := overlay.LowerID(path)
	if fi, serr := os.Stat(path); err == nil && serr == nil {
		if fi.IsDir() {
			found.Dir = id
		} else {
			found.Sum, err = images.ContentWithin(ctx, home, path, readTime)
		}
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &ImageFound{Missing: true}
	case err != nil:
		return &ImageFound{Error: faultOf(err)}
	}
	return found
}

// readTime is the timeout for reading an image: a command waits for the answer. An
// image that takes longer is not compared on the nodes.
const readTime = time.Minute

func (f *far) identity() jobs.Identity {
	id := jobs.Identity{User: cmp.Or(f.getenv("USER"), f.getenv("LOGNAME")), Home: f.getenv("HOME"), Shell: f.getenv("SHELL")}
	if u, err := user.Current(); err == nil && u.Username != "" {
		id.User = u.Username
		if id.Home == "" {
			id.Home = u.HomeDir
		}
	}
	if id.Shell == "" {
		id.Shell = "/bin/sh"
	}
	return id
}

var copyKey = pattern.Lazy(`^[0-9a-f]{24}$`)

// copyDir is where the copy of a repository stands in a state directory.
func copyDir(home, key string) (string, error) {
	if !copyKey().MatchString(key) {
		return "", fmt.Errorf("%q names no copy of a repository", key)
	}
	return filepath.Join(home, "repos", key), nil
}

// at is the ledger in home, which the other side knows from a survey.
func at(home string) (*store.Store, error) {
	if fi, err := os.Stat(filepath.Join(home, "jobs")); err != nil || !fi.IsDir() {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "there is no state directory " + home + " any more", Err: err}
	}
	return store.Open(home)
}

func (f *far) put(ctx context.Context) error {
	in := bufio.NewReaderSize(f.stdin, 64<<10)
	line, err := readLine(in, maxParcel)
	if err != nil {
		return fmt.Errorf("the job did not arrive whole: %w", err)
	}
	var p parcel
	if err := json.Unmarshal(line, &p); err != nil || p.Version != version {
		return fmt.Errorf("the job did not arrive whole: schema %d, %w", p.Version, errors.Join(err))
	}
	st, err := at(p.Home)
	if err != nil {
		return err
	}
	if c := p.Copy; c != nil {
		dir, err := copyDir(st.Home(), c.Key)
		if err != nil {
			return err
		}
		pack := &exactly{r: in, left: c.Size}
		if err := f.git.TakePack(ctx, dir, c.Base, c.Parts, pack); err != nil {
			return errors.Join(err, pack.err)
		}
	}
	_, err = st.Receive(store.New{Spec: p.Spec, Attempt: p.Attempt, Task: p.Task, Prompt: p.Prompt, Secrets: p.Secrets,
		Script: func(string) (string, error) { return p.Script, nil }})
	if err != nil {
		return err
	}
	st.Sweep()
	return nil
}

// exactly reads so many bytes, and fails when there are fewer.
type exactly struct {
	r    io.Reader
	left int64
	err  error
}

func (e *exactly) Read(b []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(b[:min(int64(len(b)), e.left)])
	e.left -= int64(n)
	if errors.Is(err, io.EOF) && e.left > 0 {
		err = io.ErrUnexpectedEOF
		e.err = err
	}
	return n, err
}

// readLine reads up to a line break, at most so many bytes.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			if errors.Is(err, io.EOF) && len(line) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		case len(line) > most:
			return nil, errors.New("a line is too long")
		}
	}
}

// artifacts sends the files that the task's patterns have brought back.
func (f *far) artifacts(ctx context.Context, home, job string) error {
	rec, err := load(home, job)
	if err != nil {
		return err
	}
	_, err = transfer.Pack(ctx, f.stdout, filepath.Join(rec.Current().Dir, dirArtifacts)+"/.", transfer.Options{})
	return err
}

// dirArtifacts is where a runner keeps them, in the attempt's directory.
const dirArtifacts = "artifacts"

func load(home, job string) (*jobs.Record, error) {
	st, err := at(home)
	if err != nil {
		return nil, err
	}
	return st.Load(job)
}

// remove deletes a job's record. That it is this job's is what loading it has
// checked: the id in it is that of its directory.
func (f *far) remove(home, job string) error {
	st, err := at(home)
	if err != nil {
		return err
	}
	rec, err := st.Load(job)
	if jobs.KindOf(err) == jobs.KindNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return st.Remove(rec)
}
