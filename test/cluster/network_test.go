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
}
