package sitefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/jobs"
)

// Path is where the file is. It is fixed when a program is linked
// (-ldflags "-X berth/internal/config/sitefile.Path=FILE"), and no variable of a user's
// changes it.
var Path = "/etc/berth/site.toml"

// Owner is the user to whom the file and its directory have to belong: root. Only tests
// change it, whose user may be another one.
var Owner uint32

// The least time between two questions for the queue that no user waits for: where
// the file says nothing, and within what it may say.
const (
	DefaultPoll = 15 * time.Second
	leastPoll   = 2 * time.Second
	mostPoll    = 10 * time.Minute
)

// mostCount bounds the numbers in the file.
const mostCount = 1 << 30

// File is what a site has said. Nil is that there is no file, and forbids nothing.
type File struct {
	Path string
	// Contact is added to what a user reads who is refused.
	Contact string
	// Elsewhere is that no task runs on this machine but in jobs of a cluster's scheduler.
	Elsewhere bool
	Level     jobs.Level        // the lowest that a place may have; "" is any
	Poll      time.Duration     // between questions to the scheduler; 0 is [DefaultPoll]
	Bound     jobs.NetworkBound // what a network reaches at most; without an origin
	Via       []string          // the ways out that may be used; nil is all
	Limits    Limits
	Caps      jobs.Caps // the most that a task may have as its caps; 0 is any
	Review    Review
	Confirm   string // whether a person confirms each job of berth mcp: [ConfirmAlways], [ConfirmNever], or "" where users say it

	keys []Key
}

// Limits are the most of one job, and of one user; 0 is any.
type Limits struct {
	Submitted int
	Time      time.Duration
	CPUs      int
	Memory    jobs.Bytes
	GPUs      int
}

// Review is what a site asks of reviews.
type Review struct {
	Other      bool // another account than the author's approves
	MaxWaiting int  // so many results may wait for a verdict before a task is refused that would make one more; 0 is any
}

// Key is a key that the file sets.
type Key struct {
	Name  string // with its table: "jobs.max_time"
	Value string // for people
	Line  int
}

// Keys are those that the file sets, in the order of the documentation.
func (f *File) Keys() []Key {
	if f == nil {
		return nil
	}
	return f.keys
}

// Read reads the site's file. It is nil where there is none. A file that cannot be read
// or trusted, or that has a mistake, is an error: what it forbids is not known then.
func Read() (*File, error) {
	data, err := trusted(Path)
	if err != nil || data == nil {
		return nil, err
	}
	f, err := parse(Path, data)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the site file has a mistake, and nothing starts until it is corrected: " + err.Error(),
			Hint: "tell your administrators; berth help admins has its keys"}
	}
	return f, nil
}

// Poll is the least time between two questions to a scheduler that no user waits for.
// What is wrong with the file is told where it is held.
func Poll() time.Duration {
	f, err := Read()
	if err != nil || f == nil || f.Poll == 0 {
		return DefaultPoll
	}
	return f.Poll
}

// trusted returns the content of a file that only its owner can change; nil is that there
// is none.
func trusted(path string) ([]byte, error) {
	fail := func(why string, err error) error {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the site file " + path + " " + why, Err: err,
			Hint: "nothing starts until this is corrected; tell your administrators: ls -lLd " + filepath.Dir(path) + " " + path}
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return nil, fail("is a link to nothing", nil)
		}
		return nil, nil
	}
	if err != nil {
		return nil, fail("cannot be read", err)
	}
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(real)} {
		fi, err := os.Stat(dir)
		if err != nil {
			return nil, fail("cannot be read", err)
		}
		if why := open(fi); why != "" {
			return nil, fail("cannot be trusted: its directory "+dir+" "+why, nil)
		}
	}
	// A FIFO in its place must not be waited for.
	file, err := os.OpenFile(real, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fail("cannot be read", err)
	}
	defer func() { _ = file.Close() }()
	fi, err := file.Stat()
	switch {
	case err != nil:
		return nil, fail("cannot be read", err)
	case !fi.Mode().IsRegular():
		return nil, fail("is not a regular file", nil)
	case fi.Size() > strict.MaxFile:
		return nil, fail("has more than "+jobs.Bytes(strict.MaxFile).String(), nil)
	}
	if why := open(fi); why != "" {
		return nil, fail("cannot be trusted: it "+why, nil)
	}
	data := make([]byte, fi.Size())
	n, err := file.ReadAt(data, 0)
	if n < len(data) {
		return nil, fail("cannot be read", err)
	}
	return data, nil
}

// open says why others than the owner can change a file; "" is that they cannot.
func open(fi fs.FileInfo) string {
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !ok || st.Uid != Owner:
		return "belongs to another user than root"
	case fi.Mode().Perm()&0o022 != 0:
		return fmt.Sprintf("can be written by others (mode %04o)", fi.Mode().Perm())
	}
	return ""
}

// The levels that a site may ask for.
var levels = []string{string(jobs.LevelFS), string(jobs.LevelEgress)}

// The words of review.by: who has to approve.
const (
	ByAny   = "any"
	ByOther = "other"
)

// The words of mcp.confirm: whether a person confirms each job that an agent submits.
const (
	ConfirmAlways = "always" // whatever users say
	ConfirmNever  = "never"  // where a user says nothing
)

// Ways are the words of network.via.
var Ways = []string{jobs.ViaNode, jobs.ViaLogin, strings.TrimSuffix(jobs.ViaProxy, ":")}

// parse reads the content of the file.
func parse(path string, data []byte) (*File, error) {
	doc, err := strict.DecodeTOML(path, data)
	if err != nil {
		return nil, err
	}
	f := &File{Path: path}
	root := doc.Root()
	t := root.Table("site")
	if v := t.Take("tasks_here"); v.Given() {
		f.Elsewhere = v.Is(strict.Bool) && !v.Bool()
		if !v.Is(strict.Bool) {
			v.MustBe("true or false")
		}
		f.set("site.tasks_here", v, v.Source())
	}
	if v := t.Take("level"); v.Given() {
		f.Level = jobs.Level(v.OneOf(levels...))
		f.set("site.level", v, string(f.Level))
	}
	if v := t.Take("poll"); v.Given() {
		if f.Poll = keys.Duration(v); f.Poll != 0 && (f.Poll < leastPoll || f.Poll > mostPoll) {
			v.Failf("", "must be from %v to %v, found %v", leastPoll, mostPoll, f.Poll)
		}
		f.set("site.poll", v, f.Poll.String())
	}
	if v := t.Take("contact"); v.Given() {
		f.Contact = v.Text()
		f.set("site.contact", v, f.Contact)
	}
	f.network(root.Table("network"))
	f.limits(root.Table("jobs"))
	f.caps(root.Table("caps"))
	f.review(root.Table("review"))
	if v := root.Table("mcp").Take("confirm"); v.Given() {
		f.Confirm = v.OneOf(ConfirmAlways, ConfirmNever)
		f.set("mcp.confirm", v, f.Confirm)
	}
	return f, doc.Err()
}

func (f *File) network(t *strict.Reader) {
	var p jobs.Place
	for _, key := range []string{"mode", "allow", "deny", "opaque"} {
		v := t.Take(key)
		if !v.Given() {
			continue
		}
		keys.Find("network."+key).Take(v, &p)
		shown := v.Source()
		if v.Is(strict.List) {
			shown = strings.Join(v.Texts("words"), " ")
		}
		f.set("network."+key, v, shown)
	}
	n := p.Network.Said()
	f.Bound = jobs.NetworkBound{Mode: n.Mode, Allow: n.Allow, Deny: n.Deny, Opaque: n.Opaque}
	if v := t.Take("allow"); v.Given() && n.Mode != jobs.NetworkAllow {
		v.Failf(`leave mode out, or make it "allow"`, "does not go with mode = %q", n.Mode)
	}
	if v := t.Take("deny"); v.Given() && n.Mode != jobs.NetworkAllow && n.Mode != jobs.NetworkNone {
		v.Failf(`make the mode "allow"; what a network denies that is open is held by no backend`, "needs mode = \"allow\"")
	}
	if v := t.Take("via"); v.Given() {
		f.Via = []string{}
		for _, item := range v.Items("words") {
			if word := item.OneOf(Ways...); word != "" {
				f.Via = append(f.Via, word)
			}
		}
		if v.Is(strict.List) && len(v.Items("words")) == 0 {
			v.Failf(`with mode = "none" nothing leaves`, "names no way out")
		}
		f.set("network.via", v, strings.Join(f.Via, " "))
	}
}

func (f *File) limits(t *strict.Reader) {
	const running = "is not a key: how many run at once is for the scheduler to hold, which knows all jobs of a user (MaxJobs of an association or QOS)"
	t.Refuse(running, "max_running")
	for _, k := range []struct {
		key string
		to  *int
	}{{"max_submitted", &f.Limits.Submitted}, {"max_cpus", &f.Limits.CPUs}, {"max_gpus", &f.Limits.GPUs}} {
		if v := t.Take(k.key); v.Given() {
			*k.to = v.Count(mostCount)
			f.set("jobs."+k.key, v, v.Source())
		}
	}
	if v := t.Take("max_time"); v.Given() {
		f.Limits.Time = keys.Duration(v)
		f.set("jobs.max_time", v, f.Limits.Time.String())
	}
	if v := t.Take("max_memory"); v.Given() {
		f.Limits.Memory = keys.Size(v)
		f.set("jobs.max_memory", v, f.Limits.Memory.String())
	}
}

func (f *File) caps(t *strict.Reader) {
	var p jobs.Place
	for _, key := range []string{jobs.CapRequests, jobs.CapTokens, jobs.CapUSD, jobs.CapTurns, jobs.CapWall, jobs.CapIdle, jobs.CapOutput} {
		if v := t.Take(key); v.Given() {
			keys.Find("caps."+key).Take(v, &p)
			f.set("caps."+key, v, strings.Trim(v.Source(), `"`))
		}
	}
	f.Caps = p.Caps
}

func (f *File) review(t *strict.Reader) {
	if v := t.Take("by"); v.Given() {
		f.Review.Other = v.OneOf(ByAny, ByOther) == ByOther
		f.set("review.by", v, strings.Trim(v.Source(), `"`))
	}
	if v := t.Take("max_waiting_reviews"); v.Given() {
		f.Review.MaxWaiting = v.Count(mostCount)
		f.set("review.max_waiting_reviews", v, v.Source())
	}
}

func (f *File) set(name string, v strict.Value, value string) {
	f.keys = append(f.keys, Key{Name: name, Value: value, Line: v.Line()})
}
