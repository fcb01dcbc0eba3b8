package session

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/jobs"
)

// fileTypes are the types in st_mode, see [FileInfo].
var fileTypes = map[uint64]string{syscall.S_IFREG: jobs.TypeFile, syscall.S_IFDIR: jobs.TypeDirectory, syscall.S_IFLNK: jobs.TypeSymlink}

// List lists a directory, with find(1) and stat(1) of the environment.
func (s *Session) List(ctx context.Context, sess, path string, o ListOptions) (Listing, error) {
	at, err := s.Stat(ctx, sess, cmp.Or(path, ".")+"/.")
	if err != nil {
		return Listing{}, err
	}
	argv := []string{"find", "-H", at.Path, "-mindepth", "1", "-maxdepth", strconv.Itoa(max(o.Depth, 1))}
	if o.Glob != "" {
		argv = append(argv, "-name", o.Glob)
	}
	// No path has two slashes side by side: they tell where an entry begins.
	out, more, notes, err := s.say(ctx, "list "+at.Path, append(argv, "-exec", "stat", "-c", "//%f %s %Y %n", "{}", "+"))
	if err != nil {
		return Listing{}, err
	}
	l := Listing{Path: at.Path, More: more, Notes: notes}
	for e := range strings.SplitSeq("\n"+strings.TrimSuffix(out, "\n"), "\n//") {
		f := strings.SplitN(e, " ", 4)
		if len(f) < 4 {
			continue
		}
		mode, _ := strconv.ParseUint(f[0], 16, 32)
		size, _ := strconv.ParseInt(f[1], 10, 64)
		seconds, _ := strconv.ParseInt(f[2], 10, 64)
		l.Entries = append(l.Entries, FileInfo{
			Path: below(at.Path, f[3]), Type: cmp.Or(fileTypes[mode&syscall.S_IFMT], jobs.TypeOther), Mode: fs.FileMode(mode) & fs.ModePerm,
			Size: size, Time: time.Unix(seconds, 0),
		})
	}
	if len(l.Entries) == 0 && len(notes) > 0 {
		return Listing{}, &jobs.Error{Kind: jobs.KindUsage, Msg: "list " + text(at.Path) + ": " + strings.Join(notes, "; ")}
	}
	slices.SortFunc(l.Entries, func(a, b FileInfo) int { return strings.Compare(a.Path, b.Path) })
	if n := cmp.Or(max(o.Limit, 0), 1000); len(l.Entries) > n {
		l.Entries, l.More = l.Entries[:n], true
	}
	return l, nil
}

// searching is the command of a search: a path, a pattern for names or nothing,
// and the words for grep, which are tried first.
const searching = `at=$1 name=$2; shift 2
echo | grep "$@" >/dev/null; [ $? -lt 2 ] || exit 2
find -H "$at" -type d -name .git -prune -o -type f ${name:+-name "$name"} -size +0c -size -8388608c -exec grep "$@" {} +`

// Search searches a file, or all files below a directory, with find(1) and
// grep(1) of the environment.
func (s *Session) Search(ctx context.Context, sess, path string, q Query) (Found, error) {
	at, err := s.Stat(ctx, sess, cmp.Or(path, "."))
	if err != nil {
		return Found{}, err
	}
	flags := "-nHI"
	if q.Literal {
		flags += "F"
	} else {
		flags += "E"
	}
	if q.IgnoreCase {
		flags += "i"
	}
	out, more, notes, err := s.say(ctx, "search "+at.Path, []string{"sh", "-c", searching, "sh", at.Path, q.Glob, flags, "-e", q.Pattern})
	if err != nil {
		return Found{}, err
	}
	f := Found{Path: at.Path, More: more, Notes: notes}
	for _, m := range regexp.MustCompile(`(?m)^(/.*?):(\d+):(.*)$`).FindAllStringSubmatch(out, -1) {
		line, _ := strconv.Atoi(m[2])
		shown := strings.TrimSuffix(m[3], "\r")
		f.Matches = append(f.Matches, Match{Path: below(at.Path, m[1]), Line: line, Text: shown[:min(len(shown), 500)]})
	}
	slices.SortStableFunc(f.Matches, func(a, b Match) int { return strings.Compare(a.Path, b.Path) })
	if n := cmp.Or(max(q.Limit, 0), 200); len(f.Matches) > n {
		f.Matches, f.More = f.Matches[:n], true
	}
	return f, nil
}

// below is a path relative to a directory; of the directory itself, its name.
func below(dir, name string) string {
	if rest, ok := strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/"); ok {
		return rest
	}
	return path.Base(name)
}

// say runs a command beside all sessions and returns what it says, at most 4 MiB,
// whether it had more to say, and the lines of its complaints. Codes below 2 are
// no error: find ends with 1 when it could not look everywhere, and when grep
// has found nothing.
func (s *Session) say(ctx context.Context, what string, argv []string) (out string, more bool, notes []string, err error) {
	enough, stop := context.WithCancel(ctx)
	defer stop()
	stdout, stderr := &beginning{most: 4 << 20, full: stop}, &beginning{most: 8 << 10, full: func() {}}
	p, err := s.Start(StartRequest{Command: jobs.Command{Argv: argv}, Dir: "/"}, stdout, stderr)
	if err != nil {
		return "", false, nil, err
	}
	context.AfterFunc(enough, func() { _ = p.Terminate(0) })
	select {
	case <-p.done:
	case <-ctx.Done(): // the other side may hang
		return "", false, nil, context.Cause(ctx)
	}
	res, err := p.Wait()
	if err != nil {
		return "", false, nil, err
	}
	notes = textsOf(strings.FieldsFunc(stderr.b.String(), func(r rune) bool { return r == '\n' }))
	more = stdout.b.Len() == stdout.most
	if res.Exit.Code > 1 && !more {
		why := cmp.Or(text(res.Exit.Error), strings.Join(notes, "; "))
		return "", false, nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s: exit code %d: %s", text(what), res.Exit.Code, why)}
	}
	return stdout.b.String(), more, notes, nil
}

// beginning keeps the first bytes of what is written.
type beginning struct {
	b    bytes.Buffer
	most int
	full func() // called when there is no more room
}

func (w *beginning) Write(p []byte) (int, error) {
	_, _ = w.b.Write(p[:min(len(p), w.most-w.b.Len())])
	if w.b.Len() == w.most {
		w.full()
	}
	return len(p), nil
}
