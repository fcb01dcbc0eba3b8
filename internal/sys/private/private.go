package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"berth/internal/sys/socket"
	"berth/jobs"
)

// hidden is what of the host no container sees, although it stands below a
// directory that is bound.
type hidden struct {
	what string
	// own says that it is berth's own: a bind of it, or from within it, is
	// refused.
	own   bool
	paths []string // on this machine, by filepath.Glob; UID is the user's
}

// alsoHidden are places of sockets by which a task could act as the user
// outside, and which a container that has a directory above them can do without.
var alsoHidden = []hidden{
	{what: "tmux", paths: []string{"/tmp/tmux-UID", "/run/tmux/UID"}},
	{what: "screen", paths: []string{"/run/screen", "/run/screens", "/tmp/screens", "/tmp/uscreens", "~/.screen"}},
	{what: "an editor", paths: []string{
		"/tmp/vscode-*.sock", "/run/user/UID/vscode-*.sock",
		"/tmp/emacsUID", "/run/user/UID/emacs",
		"/tmp/nvim.*", "/run/user/UID/nvim.*",
	}},
	{what: "a display", paths: []string{"/tmp/.X11-unix", "/run/user/UID/wayland-*"}},
}

// Places are the places on this machine that no container is to see.
type Places struct {
	State string   // the state directory
	Base  string   // of scratch directories: see container.ScratchBase
	Allow []string // see [jobs.Spec]
}

// list expands the patterns of what is there now.
func (p Places) list() []hidden {
	uid := strconv.Itoa(os.Getuid())
	berth := hidden{what: "berth", own: true, paths: []string{}}
	// It may be made only later, while the container runs.
	if dir, err := socket.Dir(); err == nil {
		berth.paths = append(berth.paths, dir)
	}
	for _, base := range []string{"/tmp", "/var/tmp", p.Base} {
		if base != "" {
			berth.paths = append(berth.paths, filepath.Join(base, "berth-"+uid), filepath.Join(base, "berth-"+uid+"-*"))
		}
	}
	home, _ := os.UserHomeDir()
	out := []hidden{{what: "berth", own: true, paths: []string{p.State}}, berth}
	for _, h := range alsoHidden {
		if !slices.Contains(p.Allow, h.what) {
			out = append(out, h)
		}
	}
	for i := range out {
		var found []string
		for _, pattern := range out[i].paths {
			pattern = strings.ReplaceAll(pattern, "UID", uid)
			if rest, ok := strings.CutPrefix(pattern, "~/"); ok && home != "" {
				pattern = filepath.Join(home, rest)
			}
			if !strings.Contains(pattern, "*") {
				found = append(found, pattern)
				continue
			}
			list, _ := filepath.Glob(pattern)
			found = append(found, list...)
		}
		own := out[i].own
		out[i].paths = slices.DeleteFunc(found, func(path string) bool {
			return path != p.State && (planted(path, own) || Allowed(p.Allow, path))
		})
	}
	return out
}

// planted tells whether another user has made a name in a directory where every
// user may: such a link could have anything hidden, or refused. So could
// one that a task has made with a name of berth's, which uses no links there.
func planted(path string, own bool) bool {
	fi, err := os.Lstat(path)
	if err != nil {
		return false
	}
	if own && fi.Mode()&fs.ModeSymlink != 0 {
		return true
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return !ok || st.Uid != 0 && int(st.Uid) != os.Getuid()
}

// makeFirst makes the directories of unpacked images and of scratch directories
// below binds, so that they can be hidden: a later job on this machine may put one
// there while the container runs.
func (p Places) makeFirst(binds []jobs.Mount) {
	for _, base := range []string{"/tmp", "/var/tmp", p.Base} {
		real, err := filepath.EvalSymlinks(base)
		if base == "" || err != nil {
			continue
		}
		for _, b := range binds {
			if source, err := filepath.EvalSymlinks(b.Source); err == nil && Under(real, source) {
				// One that cannot be made has nothing in it.
				_, _ = OwnDir(base, DirOf(Images))
				_, _ = OwnDir(base, DirOf(Scratch))
			}
		}
	}
}

// Covers are the mounts that hide what is private and stands below the source of
// a bind: empty, a directory of that name, over each directory, and /dev/null
// over each socket. A bind of berth's own directories is refused. notes say to
// people what was hidden.
func (p Places) Covers(binds []jobs.Mount, empty string) (covers []jobs.Mount, notes []string, err error) {
	if len(binds) == 0 {
		return nil, nil, nil
	}
	p.makeFirst(binds)
	list := p.list()
	for _, b := range binds {
		source, err := filepath.EvalSymlinks(b.Source)
		if err != nil {
			continue // the container program says what is wrong with it
		}
		var what []string
		for _, h := range list {
			for _, path := range h.paths {
				real, err := filepath.EvalSymlinks(path)
				if err != nil {
					if !errors.Is(err, fs.ErrNotExist) && h.own {
						return nil, nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "look at " + path, Err: err}
					}
					continue
				}
				if h.own && Under(source, real) {
					return nil, nil, ownError(b, real)
				}
				rel, ok := below(real, source)
				if !ok {
					continue
				}
				fi, err := os.Lstat(real)
				if err != nil || !h.own && fi.IsDir() && !mayEnter(real) {
					continue // the task cannot enter it inside, either
				}
				from := empty
				if !fi.IsDir() {
					from = os.DevNull
				}
				covers = append(covers, jobs.Mount{Source: from, Destination: filepath.Join(b.Destination, rel)})
				if !slices.Contains(what, h.what) {
					what = append(what, h.what)
				}
			}
		}
		if len(what) > 0 {
			notes = append(notes, fmt.Sprintf("hidden in the bind %s: what belongs to %s", b.Destination, strings.Join(what, ", ")))
		}
	}
	// One over the other would fail where the first is no directory.
	slices.SortStableFunc(covers, func(a, b jobs.Mount) int { return strings.Compare(a.Destination+"/", b.Destination+"/") })
	var out []jobs.Mount
	for _, c := range covers {
		if n := len(out); n > 0 && Under(c.Destination, out[n-1].Destination) {
			continue
		}
		out = append(out, c)
	}
	return out, notes, nil
}

// mayEnter tells whether this user can use what stands in a directory.
func mayEnter(dir string) bool {
	fi, err := os.Stat(filepath.Join(dir, "."))
	return err == nil && fi.IsDir()
}

func ownError(b jobs.Mount, dir string) error {
	return &jobs.Error{Kind: jobs.KindConfig,
		Msg: fmt.Sprintf("%s cannot be mounted at %s: it belongs to berth's own directory %s, "+
			"from which programs run outside of the container", b.Source, b.Destination, dir),
		Hint: "copy what the task needs of it elsewhere; a directory above it can be mounted, it is hidden there"}
}

// Allowed tells whether one of the configuration's words is one of these names,
// or a pattern of one that is a path.
func Allowed(words []string, names ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			ok, _ := path.Match(word, name)
			return ok || word == name
		})
	})
}

// Under tells whether path is dir or stands below it. Both are clean.
func Under(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// below is the path from dir to what stands below it.
func below(path, dir string) (rel string, ok bool) {
	rel, err := filepath.Rel(dir, path)
	return rel, err == nil && rel != "." && filepath.IsLocal(rel)
}
