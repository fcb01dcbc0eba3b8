package ssh

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/node/nodebin"
	"berth/jobs"
)

// fakeSSH stands in for ssh and for the host: it knows the options that we
// give and no others, writes down its command line, and has a shell run the
// line. FAKE_SAY makes it fail as ssh does.
const fakeSSH = `#!/bin/sh
log=$FAKE_DIR/log
{ printf 'call'; for a; do printf ' <%s>' "$a"; done; echo; } >>"$log"
control= batch= master=
while [ $# -gt 0 ]; do
	case $1 in
	-V) echo 'OpenSSH_9.9p1, OpenSSL 3' >&2; exit 0 ;;
	-o) echo "$2" | grep -q '^[A-Za-z]*=.' || { echo "command-line: line 0: Bad configuration option: $2" >&2; exit 255; }; shift ;;
	-l | -p | -i) shift ;;
	-O) [ "$2" = check ] || { echo "fake: $2 is never asked for" >&2; exit 99; }; [ -e "$FAKE_DIR/master" ] || { echo 'Control socket connect: No such file' >&2; exit 255; }; exit 0 ;;
	-T | -oRemoteCommand=none | -oClearAllForwardings=yes | -oForwardAgent=no | -oForwardX11=no | -oPermitLocalCommand=no) ;;
	-oLogLevel=ERROR | -oConnectTimeout=15 | -oServerAliveInterval=15 | -oServerAliveCountMax=3) ;;
	-oControlMaster=auto | -oControlMaster=no | -oControlPersist=300) ;;
	-oControlPath=*) control=$1 ;;
	-oBatchMode=yes) batch=1 ;;
	--) shift; break ;;
	*) echo "fake: unknown option $1" >&2; exit 99 ;;
	esac
	shift
done
[ $# = 2 ] && [ -n "$control" ] && [ -n "$batch" ] || { echo "fake: not a call of ours: $*" >&2; exit 99; }
[ -z "$FAKE_SAY" ] || { printf '%s\n' "$FAKE_SAY" >&2; exit 255; }
[ -z "$FAKE_BANNER" ] || { echo "$FAKE_BANNER"; echo "$FAKE_BANNER" >&2; }
touch "$FAKE_DIR/master"
cd "$FAKE_DIR/home" || exit 99
HOME=$FAKE_DIR/home setsid -w "${FAKE_SHELL:-/bin/sh}" -c "$2"
r=$?
[ ! -e "$FAKE_DIR/late" ] || { exec >&-; sleep 3; }
[ $r != 9 ] || exit 255 # killed: ssh knows no better
exit $r
`

// fake is a host whose ssh is the fake; the log has one line for each call.
func fake(t *testing.T, env ...string) (h *Host, dir string) {
	t.Helper()
	dir = t.TempDir()
	program := filepath.Join(dir, "ssh")
	if err := os.WriteFile(program, []byte(fakeSSH), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "home"), 0o700); err != nil {
		t.Fatal(err)
	}
	b := Backend{Program: program, Control: filepath.Join(dir, "c"), Env: append([]string{"PATH=" + os.Getenv("PATH"), "FAKE_DIR=" + dir, "HOME=/nowhere", "SECRET=canary"}, env...), Node: fakeNode}
	h, err := b.Host(jobs.SSHSpec{Host: "there"})
	if err != nil {
		t.Fatal(err)
	}
	return h, dir
}

func calls(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\ncall")
}

// fakeProgram stands in for berth-node: connect echoes.
const fakeProgram = `#!/bin/sh
case $1 in
guest) exit 2 ;;
connect)
	[ "$2" = --env ] || exit 2
	echo "noise" >&2
	case $* in
	*--no-start*) echo 'berth-connect: {"version":3,"error":"the environment does not run","not_running":true}' >&2; exit 3 ;;
	*--make*) read -r spec ;;
	esac
	echo 'berth-connect: {"version":3,"progress":"making \u001b[2J it"}' >&2
	[ ! -e "$HOME/fails" ] || { echo 'berth-connect: {"version":3,"error":"no room","kind":6,"hint":"df"}' >&2; exit 78; }
	[ ! -e "$HOME/breaks" ] || { echo 'client_loop: send disconnect: Broken pipe' >&2; exit 255; }
	echo 'berth-connect: {"version":3,"ready":true,"notes":["a note"]}' >&2
	[ ! -e "$HOME/cut" ] || exit 255
	exec cat ;;
*) exit 2 ;;
esac
`

func fakeNode(goos, _ string) (nodebin.Program, bool) {
	if goos != "linux" && goos != "darwin" {
		return nodebin.Program{}, false
	}
	return nodebin.Of([]byte(fakeProgram)), true
}
