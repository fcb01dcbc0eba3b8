//go:build cluster && linux

package cluster

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"berth/test/fakes/internet"
)

// internet starts the small one beside a cluster, to the test's end, and returns the network of its sites.
func (s site) internet(t *testing.T) string {
	t.Helper()
	ask := func(more ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), longest)
		defer cancel()
		c := exec.CommandContext(ctx, filepath.Join(root(t), "scripts", "testbed"), append([]string{"internet", "--slurm", s.version, "--profile",
			s.profile}, more...)...)
		c.Env = append(os.Environ(), "BERTH_TESTBED="+s.bed())
		c.Stderr = os.Stderr
		out, err := c.Output()
		return strings.TrimSpace(string(out)), err
	}
	t.Cleanup(func() {
		if _, err := ask("--stop"); err != nil {
			t.Error(err)
		}
	})
	base, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	return base
}

// arrived is what that internet has seen.
func (s site) arrived(t *testing.T) []internet.Event {
	t.Helper()
	all, err := internet.ParseLog(s.ok(t, "cat /mnt/share/internet/log.jsonl") + "\n")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// clients work with a site that is allowed, by the transparent door and by the proxy, and are refused another.
const clients = `export SSL_CERT_FILE=/opt/ca.pem GIT_SSL_CAINFO=/opt/ca.pem GIT_TERMINAL_PROMPT=0
for door in proxy transparent; do
	[ $door = proxy ] || unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
	for site in allowed other; do
		say() { echo "$door $site $1: $("${@:2}" >/tmp/out 2>&1 && echo works || echo fails)"; }
		say python python3 -c "import urllib.request; urllib.request.urlopen('https://$site.test/', timeout=20).read()"
		say Go /opt/bin/probe -get https://$site.test/
		[ $door = proxy ] || say getent getent ahostsv4 $site.test
		[ $site = other ] || site=git
		say git git ls-remote https://$site.test/repo.git
	done
done`

const clientsSay = `proxy allowed python: works
proxy allowed Go: works
proxy git git: works
proxy other python: fails
proxy other Go: fails
proxy other git: fails
transparent allowed python: works
transparent allowed Go: works
transparent allowed getent: works
transparent git git: works
transparent other python: fails
transparent other Go: fails
transparent other getent: fails
transparent other git: fails`

// TestNetwork: a job and an environment whose network is a list of names reach these and nothing else,
// as alice on real nodes; each way out that is known is tried by both doors.
func TestNetwork(t *testing.T) {
	s := standard
	s.need(t)
	s.disturb(t) // it changes the nodes' name server
	base := s.internet(t)
	node := strings.TrimSuffix(base, "0/24") + "101" // c1's there
	over := make(chan struct{})
	const service = "berth-test-service"
	go func() { // bob's, on the loopback and without a path
		defer close(over)
		s.on(t, "c1", "bob", "sh", "-c",
			"timeout 900 socat ABSTRACT-LISTEN:"+service+",fork EXEC:true & exec timeout 900 python3 -m http.server --bind 127.0.0.1 "+strconv.Itoa(internet.LoopPort))
	}()
	t.Cleanup(func() {
		s.on(t, "c1", "bob", "pkill", "-u", "bob", "-f", "ABSTRACT-LISTEN:"+service+"|http.server --bind")
		<-over
	})
	flags := "--network allow --bind /mnt/share/bin:/opt/bin --bind /mnt/share/internet/ca.pem:/opt/ca.pem"
	for _, w := range internet.Allowed() {
		flags += " --allow " + quote(w)
	}
	probe := "/opt/bin/probe -base " + base + " -node " + node + " -port " + strconv.Itoa(internet.LoopPort) + " -abstract " + service
	look := func(what, out string) {
		t.Helper()
		all, err := internet.ReadProbes(out + "\n")
		if len(all) < 60 || err != nil {
			t.Errorf("%s: %d lines, %v: %s", what, len(all), err, out)
		}
		for _, p := range all {
			if p.Open {
				t.Errorf("%s: %s: open: %s", what, p.Name, p.Seen)
			}
		}
	}
	id := s.submit(t, flags+" --slurm --nodelist=c1", clients)
	s.wait(t, id, 0)
	if out := s.ok(t, "berth logs --stdout "+id); out != clientsSay {
		t.Errorf("clients: got\n%s\nwant\n%s", out, clientsSay)
	}
	id = s.submit(t, flags+" --slurm --nodelist=c1", probe+" -many 200 && "+probe+" -proxy ${http_proxy#http://} -many 100")
	s.wait(t, id, 0)
	look("a job", s.ok(t, "berth logs --stdout "+id))
	t.Cleanup(func() { s.sh(t, "berth env rm --force network") })
	look("an environment", s.ok(t, "cd "+s.dir(t)+" && berth exec --env network --image "+s.image+" "+flags+" -- "+probe+" -many 100"))
	for _, e := range internet.Stray(base, s.arrived(t)) {
		t.Errorf("arrived: %+v", e)
	}
	s.credentials(t)
}

// asksModels asks a vendor of models with a key that it does not have, and looks for the key where a task can.
const asksModels = `python3 - <<'E'
import os, urllib.request as u, urllib.error
def ask(name, url, key, body=None):
    try:
        with u.urlopen(u.Request(url, data=body, headers={'x-api-key': key}), timeout=20) as r:
            print(name, r.status, 'one two three' in r.read().decode())
    except urllib.error.HTTPError as e:
        print(name, e.code)
    except Exception as e:
        print(name, 'nothing')
body = b'{"model":"m-1","max_tokens":9,"messages":[{"role":"user","content":"hello"}]}'
url, key = os.environ['ANTHROPIC_BASE_URL'], os.environ['ANTHROPIC_API_KEY']
ask('model', url + '/v1/messages', key, body)
ask('forged', url + '/v1/messages', 'x' * 40, body)
ask('other', url + '/v1/files', key)
ask('echo', os.environ['ECHO_URL'] + '/x', os.environ['ECHO_KEY'])
ask('direct', 'https://model.test/v1/messages', key, body)
E
word=$(printf %s%s sk-test- 8f14e45f)
for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do tr '\0' '\n' <$f; done 2>/dev/null >/tmp/all
echo found $(grep -c $word /tmp/all) $(rm /tmp/all; grep -rlsa --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr $word /)
touch /sync/ready; until test -e /sync/go; do sleep 0.2; done`

const asksModelsSay = `model 200 True
forged 401
other 403
echo nothing
direct nothing
found 0`

// credentials: a job asks a model with a key that stands in a file of alice's on the login node. While it runs and afterwards no process
// and no other file of the node or of her home has it.
func (s site) credentials(t *testing.T) {
	t.Helper()
	d := s.dir(t)
	s.ok(t, "mkdir -m 700 -p "+d+"/config/berth "+d+"/sync; umask 077; echo "+internet.ModelKey+" >"+d+"/config/berth/key; cat >"+d+`/config/berth/config.toml <<E
[credentials.anthropic]
from = "file:`+d+`/config/berth/key"
upstream = "https://model.test"
ca = "/mnt/share/internet/ca.pem"

[credentials.echo]
from = "command:cat `+d+`/config/berth/key"
upstream = "https://api.test"
ca = "/mnt/share/internet/ca.pem"
header = "x-api-key"
base_url_env = "ECHO_URL"
key_env = "ECHO_KEY"
methods = ["GET"]
paths = ["/**"]
E`)
	id := s.ok(t, "export XDG_CONFIG_HOME="+d+"/config; berth submit "+s.flags()+" "+s.place()+" --retry off --slurm --nodelist=c1 --bind "+d+
		"/sync:/sync:rw --credential anthropic --credential echo -- "+quote(asksModels))
	s.ok(t, "for n in $(seq 600); do test -e "+d+"/sync/ready && exit; sleep 0.2; done; exit 1")
	const word = "'sk-test-[8]f14e45f'" // a pattern that does not match the argv of the greps that look for it
	const look = `for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do tr '\0' '\n' <$f; done 2>/dev/null | grep ` + word +
		`; grep -rlsa --exclude-dir=proc --exclude-dir=sys --exclude=key --exclude=key.away ` + word + " /tmp /var/spool /var/log /run /dev/shm /home/alice; exit 0"
	s.ok(t, "grep -q "+word+" "+d+"/config/berth/key")
	for _, host := range []string{"c1", "login"} {
		if a := s.on(t, host, "root", "sh", "-c", look); a.out != "" || a.code != 0 {
			t.Errorf("%s: %+v", host, a)
		}
	}
	s.ok(t, "touch "+d+"/sync/go")
	s.wait(t, id, 0)
	if out := s.ok(t, "berth logs --stdout "+id); out != asksModelsSay {
		t.Errorf("got\n%s\nwant\n%s", out, asksModelsSay)
	}
	if a := s.on(t, "c1", "root", "sh", "-c", look); a.out != "" || a.code != 0 {
		t.Errorf("afterwards: %+v", a)
	}
	s.heldCredentials(t, d, look)
}

// heldCredentials: commands of an environment in an allocation ask that model with the key, which the client on the login node hands to the
// keeper on c1 once for each allocation. look finds it where it must not be, and says so.
func (s site) heldCredentials(t *testing.T, d, look string) {
	t.Helper()
	s.ok(t, "rm -f "+d+"/sync/ready "+d+"/sync/go")
	h := s.hold(t, "--slurm --nodelist=c1 --bind "+d+"/sync:/sync:rw --credential anthropic --credential echo")
	h.cmd = "XDG_CONFIG_HOME=" + d + "/config " + h.cmd
	ended := make(chan answer, 1)
	go func() { ended <- s.sh(t, h.cmd+" --timeout 10m -- "+quote(asksModels)) }()
	s.ok(t, "for n in $(seq 600); do test -e "+d+"/sync/ready && exit; sleep 0.2; done; exit 1")
	for _, host := range []string{"c1", "login"} {
		if a := s.on(t, host, "root", "sh", "-c", look); a.out != "" || a.code != 0 {
			t.Errorf("%s: %+v", host, a)
		}
	}
	s.ok(t, "touch "+d+"/sync/go")
	if a := <-ended; a.code != 0 || strings.TrimSpace(a.out) != asksModelsSay {
		t.Errorf("exit code %d, got\n%s\nwant\n%s\n%s", a.code, a.out, asksModelsSay, a.err)
	}
	// While it is warm no key is needed. The next allocation is not even asked for without it.
	s.ok(t, "mv "+d+"/config/berth/key "+d+"/config/berth/key.away")
	const placeholder = "echo $ANTHROPIC_API_KEY"
	first := h.want(t, h.cmd+" -- '"+placeholder+"'", 0)
	if !strings.HasPrefix(first.out, "berth-placeholder-") {
		t.Errorf("%+v", first)
	}
	s.ok(t, "berth env stop "+h.name)
	h.want(t, h.cmd+" -- true", 125, "the key of the credential anthropic \\(file .*no such file")
	if left := s.ok(t, h.queue()); left != "" {
		t.Errorf("without the key: %s", left)
	}
	s.ok(t, "mv "+d+"/config/berth/key.away "+d+"/config/berth/key")
	if next := h.want(t, h.cmd+" -- '"+placeholder+"'", 0, "started again"); next.out == first.out || !strings.HasPrefix(next.out, "berth-placeholder-") {
		t.Errorf("%+v, and before %+v", next, first)
	}
	s.ok(t, "berth env stop "+h.name)
	if a := s.on(t, "c1", "root", "sh", "-c", look); a.out != "" || a.code != 0 {
		t.Errorf("afterwards: %+v", a)
	}
}
