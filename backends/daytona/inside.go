package daytona

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"berth/backends/external/protocol"
)

// toolbox is an address of the daemon in a sandbox.
func (b *sandbox) toolbox(parts ...string) string {
	s := strings.TrimRight(b.Toolbox, "/") + "/" + url.PathEscape(b.ID)
	for _, p := range parts {
		s += "/" + p
	}
	return s
}

// quoted is a word for a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// run runs a short script that may be run again. It has no input, and its answer
// is text of which only lines that the script marks are of use.
func (c *client) run(ctx context.Context, b *sandbox, op, script string) (map[string]string, error) {
	mark := "berth-" + rand.Text()[:8] + ":"
	script = "m=" + mark + "\n" + script
	var out struct {
		Code   int    `json:"exitCode"`
		Result string `json:"result"`
	}
	body := map[string]any{"command": "sh -c " + quoted(script) + " </dev/null", "timeout": 40}
	err := c.do(ctx, call{op: op, method: http.MethodPost, url: b.toolbox("process", "execute"), policy: early, body: body, into: &out})
	if err != nil {
		return nil, err
	}
	said := map[string]string{}
	for line := range strings.Lines(out.Result) {
		if _, rest, ok := strings.Cut(line, mark); ok {
			k, v, _ := strings.Cut(strings.TrimRight(rest, "\r\n"), "=")
			said[k] = v
		}
	}
	if out.Code != 0 || len(said) == 0 {
		return nil, &protocol.Error{Kind: protocol.Unreachable,
			Message: fmt.Sprintf("%s: a script in the sandbox ended with %d: %s", op, out.Code, tail(out.Result)),
			Hint:    "does its image have sh and sha256sum, and a home or a /tmp that can be written?"}
	}
	return said, nil
}

func tail(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.ToValidUTF8(s[max(0, len(s)-300):], "")
}

// placeScript finds a directory for the guest; /tmp is the last choice: some images
// clean it. What was uploaded is put there, if it came whole. It tells whether the guest
// stands there whole.
const placeScript = `h=%s f=%s new=%s
for d in "$HOME/.berth" /opt/berth "/tmp/.berth-$(id -u)"; do
  mkdir -p -m 755 "$d" 2>/dev/null && [ -w "$d" ] && [ -x "$d" ] && [ ! -L "$d" ] && break
  d=
done
[ -n "$d" ] || exit 9
[ -e "$d/.zshrc" ] || : >"$d/.zshrc"
echo "${m}dir=$d"
echo "${m}arch=$(uname -m)"
sum() { [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$h" ]; }
if [ -n "$new" ]; then
  if sum "$new"; then chmod 755 "$new" && mv -f "$new" "$d/$f.new" && mv -f "$d/$f.new" "$d/$f"; else rm -f "$new"; fi
fi
if [ -x "$d/$f" ] && sum "$d/$f"; then echo "${m}have=1"; fi
`

// install puts the guest program into a sandbox that runs, unless it is there,
// and returns its path. In one that was just made it is not looked for first.
func (c *client) install(ctx context.Context, b *sandbox, g *protocol.Guest, made bool) (path string, err error) {
	name := "berth-node-" + g.SHA256[:min(12, len(g.SHA256))]
	place := func(fresh string) (have bool, err error) {
		said, err := c.run(ctx, b, "look into the sandbox", fmt.Sprintf(placeScript, quoted(g.SHA256), quoted(name), quoted(fresh)))
		if err != nil {
			return false, err
		}
		if arch := goArch(said["arch"]); arch != g.Arch {
			return false, unsupported("name an image of this machine's architecture",
				"the sandbox is of the architecture %s, and the guest program of %s", said["arch"], g.Arch)
		}
		dir := said["dir"]
		if !strings.HasPrefix(dir, "/") || strings.ContainsAny(dir, "\x00\n") {
			return false, protocol.Errorf(protocol.Unreachable, "the sandbox names %q for the guest program", dir)
		}
		path = dir + "/" + name
		return said["have"] != "", nil
	}
	if !made {
		if have, err := place(""); have || err != nil {
			return path, err
		}
	}
	c.say("putting the guest program into the sandbox")
	fresh := "/tmp/." + name + "-" + rand.Text()[:8]
	stop := c.alive("putting the guest program into the sandbox")
	err = c.upload(ctx, b, g.Path, fresh)
	stop()
	if err != nil {
		return "", err
	}
	have, err := place(fresh)
	if err == nil && !have {
		err = protocol.Errorf(protocol.Unreachable, "the guest program did not arrive whole in the sandbox")
	}
	return path, err
}

// goArch is what Go calls a machine of uname.
func goArch(machine string) string {
	switch machine {
	case "x86_64", "amd64":
		return "amd64"
	case "aarch64", "arm64":
		return "arm64"
	}
	return machine
}

// uploadTime is enough for 20 MiB at 40 kB/s.
const uploadTime = 10 * time.Minute

// upload writes a file of this machine into a sandbox. It is sent from its disk,
// from the beginning each time.
func (c *client) upload(ctx context.Context, b *sandbox, from, to string) error {
	fi, err := os.Stat(from)
	if err != nil {
		return protocol.Errorf(protocol.Internal, "the guest program: %v", err)
	}
	q := call{
		op: "upload the guest program", method: http.MethodPost, url: b.toolbox("files", "upload-v2") + "?path=" + url.QueryEscape(to),
		open: func() (io.Reader, error) { return os.Open(from) }, size: fi.Size(), typ: "application/octet-stream", time: uploadTime,
	}
	err = c.do(ctx, q)
	if !isStatus(err, http.StatusNotFound) && !isStatus(err, http.StatusMethodNotAllowed) {
		return err
	}
	// A daemon of before 2026 has only the way for many files.
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	if err := form.WriteField("files[0].path", to); err != nil {
		return err
	}
	if _, err := form.CreateFormFile("files[0].file", "guest"); err != nil {
		return err
	}
	end := "\r\n--" + form.Boundary() + "--\r\n"
	q.url, q.typ, q.size = b.toolbox("files", "bulk-upload"), form.FormDataContentType(), int64(head.Len())+fi.Size()+int64(len(end))
	q.open = func() (io.Reader, error) {
		f, err := os.Open(from)
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(head.Bytes()), f, strings.NewReader(end)), f}, nil
	}
	return c.do(ctx, q)
}
