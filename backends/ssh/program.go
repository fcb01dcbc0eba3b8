package ssh

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/internal/node/nodebin"
	"berth/internal/sys/run"
	"berth/jobs"
)

// binDir is where the program stands, below the home of the user there.
const binDir = ".local/state/berth/bin"

// machine is what is known of a host. It is kept beside the control socket, so
// that a host that was met before costs no question; when it has become wrong,
// the program is not found or does not run, and the host is asked again.
type machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
}

func (h *Host) known() (m machine, ok bool) {
	b, err := os.ReadFile(filepath.Join(h.control, h.name+".json"))
	if err != nil {
		return m, false
	}
	return m, json.Unmarshal(b, &m) == nil && m.OS != "" && m.Arch != ""
}

// know remembers; that it could not costs a question the next time.
func (h *Host) know(m machine) {
	b, err := json.Marshal(m)
	if err != nil {
		return
	}
	tmp := filepath.Join(h.control, "."+h.name+rand.Text())
	if os.WriteFile(tmp, b, 0o600) != nil || os.Rename(tmp, filepath.Join(h.control, h.name+".json")) != nil {
		_ = os.Remove(tmp)
	}
}

// machines are the words of uname.
var systems, machines = map[string]string{"Linux": "linux", "Darwin": "darwin"}, map[string]string{
	"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64",
}

// programFor returns the program for a machine.
func (h *Host) programFor(m machine) (nodebin.Program, error) {
	p, ok := h.b.Node(m.OS, m.Arch)
	if !ok {
		return p, &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("this berth carries no program for %s, which is %s on %s", h, m.OS, m.Arch),
			Hint: "hosts need Linux on x86_64 or aarch64, and a berth made by scripts/build carries programs for both"}
	}
	return p, nil
}

// Install makes sure that the program stands on the host and returns its name
// in ~/.local/state/berth/bin. A host that was not met before, or where ask is
// set, is asked first, in one round trip; an upload is a second one.
func (h *Host) Install(ctx context.Context, ask bool, progress func(string)) (name string, err error) {
	if m, ok := h.known(); ok && !ask {
		p, err := h.programFor(m)
		return p.Name, err
	}
	m, there, err := h.probe(ctx)
	if err != nil {
		return "", err
	}
	p, err := h.programFor(m)
	if err != nil {
		return "", err
	}
	if size, ok := there[p.Name]; !ok || size != p.Size {
		progress(fmt.Sprintf("copying berth's program to %s (%v)", h, jobs.Bytes(p.Size)))
		if err := h.upload(ctx, p); err != nil {
			return "", err
		}
	}
	h.know(m)
	return p.Name, nil
}

// probe asks the host what it is, and which of the programs $1, ... stand there
// and run, with their sizes.
const probe = `uname -sm; cd ".local/state/berth/bin" 2>/dev/null || exit 0; for f; do [ -f "$f" ] || continue; ` +
	`"./$f" guest x </dev/null >/dev/null 2>&1; [ $? != 2 ] || echo "$f $(wc -c <"$f")"; done; exit 0`

func (h *Host) probe(ctx context.Context) (machine, map[string]int64, error) {
	var names []string
	for _, arch := range []string{"amd64", "arm64"} {
		if p, ok := h.b.Node("linux", arch); ok {
			names = append(names, p.Name)
		}
	}
	out, err := h.sh(ctx, nil, probe, names...)
	if err != nil {
		return machine{}, nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	system, arch, ok := strings.Cut(lines[0], " ")
	m := machine{systems[system], machines[arch]}
	if !ok || m.OS == "" || m.Arch == "" {
		return m, nil, &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("%s is %q, which berth has no program for", h, lines[0]),
			Hint: "hosts need Linux on x86_64 or aarch64"}
	}
	there := map[string]int64{}
	for _, l := range lines[1:] {
		if f := strings.Fields(l); len(f) == 2 {
			there[f[0]], _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	return m, there, nil
}

// install is the far side of an upload. The new file gets its name by a link:
// of two who come at once the second finds the first one's, and never takes it
// away from under those who run it. A damaged one is replaced. With a word it
// does not know the guest says how it is used and exits with 2, which shows that
// it runs here. $1 is its name, $2 its size, $3 its SHA-256, $4 the temporary.
const install = `umask 077; d=$HOME/.local/state/berth/bin; mkdir -p "$d" || exit 3; cd "$d" || exit 3; ` +
	`find . -name '.new-*' -mmin +60 -exec rm -f {} + 2>/dev/null; trap 'rm -f "$4"' EXIT; cat >"$4" || exit 3; ` +
	`[ "$(wc -c <"$4")" -eq "$2" ] || exit 4; ` +
	`s=$(sha256sum <"$4" 2>/dev/null) && { [ "${s%% *}" = "$3" ] || exit 4; }; ` +
	`chmod 700 "$4" || exit 3; "./$4" guest x </dev/null >/dev/null 2>&1; r=$?; [ "$r" = 2 ] || { echo "exit $r"; exit 5; }; ` +
	`ln "$4" "$1" 2>/dev/null; [ -f "$1" ] && [ -x "$1" ] && [ "$(wc -c <"$1")" -eq "$2" ] || mv -f "$4" "$1" || exit 3`

func (h *Host) upload(ctx context.Context, p nodebin.Program) error {
	data, err := p.Read()
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "read berth's program for " + h.String(), Err: err}
	}
	out, err := h.sh(ctx, data, install, p.Name, strconv.Itoa(len(data)), fmt.Sprintf("%x", sha256.Sum256(data)), ".new-"+rand.Text())
	what := &jobs.Error{Kind: jobs.KindInfra, Msg: "put berth's program on " + h.String(), Err: err}
	var failed *run.Error
	if err == nil || !errors.As(err, &failed) {
		return err
	}
	switch failed.Exit.Code {
	case 3:
		what.Hint = "is there room, and may it be written? " + byHand(h.spec) + " 'df -h ~; ls -ld ~/.local/state'"
	case 4:
		what.Err, what.Hint = fmt.Errorf("it did not arrive whole"), "try again; is there room? "+byHand(h.spec)+" 'df -h ~'"
	case 5:
		what.Kind, what.Msg = jobs.KindConfig, "berth's program cannot run in ~/"+binDir+" on "+h.String()
		what.Err = fmt.Errorf("%s", bytes.TrimSpace(out))
		what.Hint = "the home there may be mounted with noexec: " +
			"make ~/.local/state/berth a link to a private directory where programs may run, such as: " +
			byHand(h.spec) + ` 'mkdir -p -m 700 /scratch/$USER/berth ~/.local/state && ln -s /scratch/$USER/berth ~/.local/state/berth'`
	}
	return what
}

// sh runs one of our scripts there and returns its output.
func (h *Host) sh(ctx context.Context, stdin []byte, script string, args ...string) ([]byte, error) {
	c := jobs.Cmd{Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...)}
	if stdin != nil {
		c.Stdin = bytes.NewReader(stdin)
	}
	out, err := run.Output(ctx, h, c)
	var failed *run.Error
	if errors.As(err, &failed) {
		failed.Argv = []string{"a shell on", h.String()} // the script is too long for an error
	}
	return out, err
}
