//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"berth/engine"
	"berth/jobs"
)

var streamCases = []testCase{
	{"streams", "both apart", func(p *place) {
		res := p.want("echo out; echo err >&2", 0, "out\n")
		if res.Stderr.Text != "err\n" {
			p.t.Errorf("stderr %q", res.Stderr.Text)
		}
	}},
	{"streams", "both as one, in their order", func(p *place) {
		res := p.exec(engine.ExecRequest{Merge: true, Command: jobs.Command{Shell: `i=0; while [ $i -lt 50 ]; do echo o$i; echo e$i >&2; i=$((i + 1)); done`}})
		var want strings.Builder
		for i := range 50 {
			fmt.Fprintf(&want, "o%d\ne%d\n", i, i)
		}
		if res.Stdout.Text != want.String() || res.Stderr.Bytes != 0 {
			p.t.Errorf("%q, apart %q", res.Stdout.Text, res.Stderr.Text)
		}
	}},
	{"streams", "a command of 3 MiB", func(p *place) {
		lines := strings.Repeat("it's \"one\" line of $many\n", 3<<20/25)
		p.want("wc -c <<'EOF'\n"+lines+"EOF\necho end", 0, strconv.Itoa(len(lines))+"\nend\n")
	}},
	{"streams", "no line's end", func(p *place) {
		p.want("printf x", 0, "x")
		p.want("printf 'a\\0b'", 0, "a\x00b")
	}},
	{"streams", "invalid UTF-8", func(p *place) {
		res := p.want(`printf 'a\xff\xfeb\xe2\x82'`, 0, "a\uFFFDb\uFFFD")
		if !utf8.ValidString(res.Stdout.Text) {
			p.t.Error("not valid")
		}
		var raw bytes.Buffer
		p.exec(engine.ExecRequest{Command: jobs.Command{Shell: `printf 'a\xff\xfeb'`}, Stdout: &raw})
		if raw.String() != "a\xff\xfeb" {
			p.t.Errorf("passed on as %q", raw.String())
		}
	}},
	{"streams", "long output is shown in part and kept whole", func(p *place) {
		res := p.sh("echo begin; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end")
		out := res.Stdout
		if !out.Truncated || out.Bytes != 3000011 || !strings.HasPrefix(out.Text, "begin\nxxx") || !strings.HasSuffix(out.Text, "\nend\n") || len(out.Text) > 51000 {
			p.t.Errorf("%v, %d bytes, %d shown, %d left out", out.Truncated, out.Bytes, len(out.Text), out.Omitted)
		}
		if fi, err := os.Stat(out.File); err != nil || fi.Size() != out.Bytes || fi.Mode().Perm() != 0o600 {
			p.t.Errorf("the file: %v, %v", fi, err)
		}
	}},
	{"streams", "30 MiB arrive whole", func(p *place) {
		h := sha256.New()
		var n counter
		p.exec(engine.ExecRequest{Command: jobs.Command{Shell: "head -c 31457280 /dev/zero"}, Stdout: io.MultiWriter(h, &n)})
		want := sha256.Sum256(make([]byte, 30<<20))
		if int(n) != 30<<20 || hex.EncodeToString(h.Sum(nil)) != hex.EncodeToString(want[:]) {
			p.t.Errorf("%d bytes", n)
		}
	}},
	{"streams", "much on both at once", func(p *place) {
		res := p.sh("head -c 300000 /dev/zero >&2 & head -c 400000 /dev/zero; wait")
		if res.Stdout.Bytes != 400000 || res.Stderr.Bytes != 300000 {
			p.t.Errorf("%d and %d", res.Stdout.Bytes, res.Stderr.Bytes)
		}
	}},
	{"streams", "a process that keeps the pipe", func(p *place) {
		begun := time.Now()
		p.want("echo first; sleep 300 & kept=$!; echo second", 0, "first\nsecond\n")
		if d := time.Since(begun); d > 2*time.Minute {
			p.t.Errorf("it took %v", d)
		}
		p.want("echo next", 0, "next\n")
		p.want("kill $kept", 0, "")
	}},
	{"streams", "late output goes to no other command", func(p *place) {
		p.want("(sleep 1; echo late; echo late >&2) & true", 0, "")
		res := p.want("sleep 2; echo mine", 0, "mine\n")
		if res.Stderr.Text != "" {
			p.t.Errorf("stderr %q", res.Stderr.Text)
		}
	}},
	{"streams", "nothing to read", func(p *place) {
		p.want("cat; read x; echo $?", 0, "1\n")
	}},
	{"streams", "something to read", func(p *place) {
		res := p.exec(engine.ExecRequest{Command: jobs.Command{Shell: "cd /tmp; read first; echo got $first; wc -c"}, Stdin: strings.NewReader("line one\n" + strings.Repeat("x", 2000000))})
		if res.Code != 0 || strings.Join(strings.Fields(res.Stdout.Text), " ") != "got line one 2000000" {
			p.t.Errorf("exit %d, %q, %q", res.Code, res.Stdout.Text, res.Stderr.Text)
		}
		p.want("pwd", 0, "/tmp\n")
	}},
	{"streams", "something to read and no reader", func(p *place) {
		res := p.exec(engine.ExecRequest{Command: jobs.Command{Shell: "echo done"}, Stdin: strings.NewReader(strings.Repeat("x", 5000000))})
		if res.Code != 0 || res.Stdout.Text != "done\n" {
			p.t.Errorf("exit %d, %q", res.Code, res.Stdout.Text)
		}
	}},
	{"streams", "the output comes as it is made", func(p *place) {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		first := &firstWrite{seen: cancel}
		res, err := p.s.Exec(ctx, engine.ExecRequest{Command: jobs.Command{Shell: "echo first; exec sleep 300"}, Stdout: first})
		if err != nil || res.Code != jobs.CodeInterrupted || first.text != "first\n" {
			p.t.Errorf("got %+v, %v, %q", res, err, first.text)
		}
	}},
	{"streams", "a here-document", func(p *place) {
		p.want("cat <<'EOF'\n$HOME `x`\n\ttab\nEOF\necho after", 0, "$HOME `x`\n\ttab\nafter\n")
	}},
	{"streams", "a command of 1 MiB", func(p *place) {
		text := "x='" + strings.Repeat("0123456789abcdef", 65536) + "'; echo ${#x}"
		p.want(text, 0, "1048576\n")
	}},
	{"streams", "colours and control characters pass", func(p *place) {
		p.want(`printf '\033[31mred\033[0m\r\n\007'`, 0, "\x1b[31mred\x1b[0m\r\n\a")
	}},
}

// firstWrite remembers what came first, and tells that it came.
type firstWrite struct {
	text string
	seen func()
}

func (w *firstWrite) Write(b []byte) (int, error) {
	if w.text == "" {
		w.text = string(b)
		w.seen()
	}
	return len(b), nil
}

// counter counts what is written.
type counter int

func (c *counter) Write(b []byte) (int, error) { *c += counter(len(b)); return len(b), nil }
