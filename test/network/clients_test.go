//go:build linux

package network

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A client is a program that people use: what it is told for a site, with SITE in place of
// the name, and what it then says. It is left out where it is not on this machine.
type client struct {
	name, program, script, says string
	allowed, denied             string // sites
	noProxy                     bool   // it does not heed http_proxy
}

var clients = []client{
	{name: "curl", program: "curl", script: "curl -sS --max-time 20 https://SITE/", says: "hello from allowed.test"},
	{name: "curl, HTTP", program: "curl", script: "curl -sSf --max-time 20 http://SITE/", says: "hello from allowed.test"},
	{name: "curl, a redirect", program: "curl", script: "curl -sSL --max-time 20 'https://allowed.test/redirect?to=https://SITE/'",
		says: "hello from www.allowed.test", allowed: "www.allowed.test"},
	{name: "curl, a front with another name", program: "curl", script: "curl -sS --max-time 20 --connect-to ::cdn.allowed.test: https://SITE/",
		says: "hello from cdn.allowed.test", allowed: "cdn.allowed.test", denied: "hidden.cdn.test"},
	{name: "curl, below a wildcard", program: "curl", script: "curl -sS --max-time 20 https://a.b.SITE/", says: "hello from a.b.wild.allowed.test",
		allowed: "wild.allowed.test", denied: "tunnel.test"},
	{name: "curl, an alias", program: "curl", script: "curl -sS --max-time 20 https://SITE/", says: "hello from cname.test", allowed: "cname.test"},
	{name: "curl, an upload", program: "curl", script: "head -c 3000000 /dev/zero | curl -sS --max-time 20 --data-binary @- https://SITE/upload",
		says: "3000000 bytes"},
	{name: "curl, a model", program: "curl", script: "curl -sS --max-time 20 -H 'x-api-key: k' -d '{}' https://SITE/v1/messages", says: `"key":"k"`,
		allowed: "api.test"},
	{name: "wget", program: "wget", script: "wget -q -T 20 -t 1 -O - --ca-certificate=/opt/ca.pem https://SITE/", says: "hello from allowed.test"},
	{name: "python", program: "/usr/bin/python3",
		script: `/usr/bin/python3 -c "import urllib.request; print(urllib.request.urlopen('https://SITE/', timeout=20).read())"`, says: "hello from allowed.test"},
	{name: "node", program: "node",
		script: `node -e "fetch('https://SITE/').then(r => r.text()).then(console.log).catch(e => { console.error(e); process.exit(1) })"`,
		says:   "hello from allowed.test", noProxy: true},
	{name: "openssl", program: "openssl",
		script: `printf 'GET / HTTP/1.0\r\nHost: SITE\r\n\r\n' | timeout 20 openssl s_client -quiet -connect SITE:443 -servername SITE -verify_return_error -CAfile /opt/ca.pem 2>/dev/null`, says: "hello from allowed.test", noProxy: true},
	{name: "Go", program: "sh", script: "/opt/bin/probe -get https://SITE/", says: "hello from allowed.test"},
	{name: "git", program: "git", script: "git ls-remote https://SITE/repo.git", says: "refs/heads/main", allowed: "git.test"},
	{name: "git, a clone", program: "git", script: "rm -rf c; git clone -q https://SITE/repo.git c && cat c/README", says: "berthtest works", allowed: "git.test"},
	{name: "git over ssh", program: "ssh", script: "git ls-remote ssh://git@SITE/repo.git", says: "refs/heads/main", allowed: "git.test", noProxy: true},
	{name: "pip", program: "pip",
		script: "/usr/bin/python3 -m pip download -q --no-deps --retries 0 --disable-pip-version-check -d w --index-url https://SITE/simple berthtest && ls w", says: "berthtest-1.0-py3-none-any.whl", allowed: "pypi.test"},
	{name: "npm", program: "npm", script: "npm pack --silent --fetch-retries 0 --registry https://SITE/ berthtest", says: "berthtest-1.0.0.tgz",
		allowed: "npm.test"},
	{name: "go", program: "go",
		script: "cd $(mktemp -d) && GOMODCACHE=$PWD GOPROXY=https://SITE GONOSUMDB='*' GOFLAGS=-modcacherw go mod download -json goproxy.test/berthtest@v1.0.0", says: "berthtest@v1.0.0", allowed: "goproxy.test"},
	{name: "Java", program: "java", script: "java -Xshare:auto -XX:TieredStopAtLevel=1 -cp /opt/java Get http://SITE/", says: "hello from allowed.test",
		noProxy: true},
	{name: "bash", program: "bash", script: `bash -c 'exec 3<>/dev/tcp/SITE/4000 && echo hello >&3 && head -n 1 <&3'`, says: "hello",
		allowed: "raw.test", noProxy: true},
	// The resolvers that programs have.
	{name: "glibc", program: "getent", script: "getent ahostsv4 SITE", says: "198.1", noProxy: true},
	{name: "musl", program: "musl-gcc", script: "/opt/bin/musl-resolve SITE", says: "198.1", noProxy: true},
	{name: "Go's resolver", program: "sh", script: "/opt/bin/probe -resolve SITE", says: "198.1", noProxy: true},
}

// scripts is one script of all clients, four at a time, which prints for each and every site a line:
// its number, allowed or denied, the exit code and the end of what was said.
func scripts(all []client, which ...string) string {
	var b strings.Builder
	for n, c := range all {
		for _, w := range which {
			site := or(c.allowed, "allowed.test")
			if w == "denied" {
				site = or(c.denied, "other.test")
			}
			fmt.Fprintf(&b, "( mkdir %[1]d%[2]s; cd %[1]d%[2]s; out=$( { %[3]s ; } 2>&1 </dev/null); printf '%[1]d\t%[2]s\t%%d\t%%s\n' $? \"$(printf %%s \"$out\" | tr '\n\t' '  ' | tail -c 300)\" ) &\n",
				n, w, strings.ReplaceAll(c.script, "SITE", site))
		}
		if n%2 == 1 {
			b.WriteString("wait\n")
		}
	}
	return b.String() + "wait\n"
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// prelude has clients trust the authority, write where they may, and know a proxy or none.
func prelude(proxied bool) string {
	var b strings.Builder
	b.WriteString("cd /tmp || exit 1\n")
	if !proxied {
		b.WriteString("unset http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY NODE_USE_ENV_PROXY GIT_SSH_COMMAND\n")
	}
	for _, e := range append(clientEnv("/opt/ca.pem"), "npm_config_update_notifier=false", "PATH=$PATH:/usr/local/go/bin") {
		name, value, _ := strings.Cut(e, "=")
		fmt.Fprintf(&b, "export %s=\"%s\"\n", name, value)
	}
	return b.String()
}

// here are the clients that this machine has.
func here(t *testing.T, all []client, proxied bool) (out []client) {
	t.Helper()
	for _, c := range all {
		if _, err := exec.LookPath(c.program); err != nil {
			t.Logf("not tried, as %s is not here: %s", c.program, c.name)
			continue
		}
		if !proxied || !c.noProxy {
			out = append(out, c)
		}
	}
	return out
}

// tried compares what the script of clients has printed with what is to come of it.
func tried(t *testing.T, all []client, got ran, want map[string]bool) {
	t.Helper()
	lines := map[string][]string{}
	for line := range strings.Lines(got.out) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 4); len(f) == 4 {
			lines[f[0]+f[1]] = f[2:]
		}
	}
	for n, c := range all {
		for which, works := range want {
			is := lines[fmt.Sprint(n, which)]
			switch {
			case len(is) == 0:
				t.Errorf("%s, %s: no line of it: %s\n%s", c.name, which, got.out, got.err)
				return
			case works && (is[0] != "0" || which == "allowed" && !strings.Contains(is[1], c.says)):
				t.Errorf("%s, a site that is %s: exit code %s: %s", c.name, which, is[0], is[1])
			case !works && (is[0] == "0" || strings.Contains(is[1], "hello from")):
				t.Errorf("%s, a site that is %s, answers: %s", c.name, which, is[1])
			}
		}
	}
}

// javaFlags binds a program for Java, and what Debian's has below /etc.
func javaFlags(t *testing.T) (flags []string) {
	t.Helper()
	if _, err := exec.LookPath("java"); err != nil {
		return nil
	}
	dir := filepath.Join(top, "java")
	must(t, os.MkdirAll(dir, 0o755))
	const source = `public class Get { public static void main(String[] a) throws Exception {
  System.out.println(new String(new java.net.URL(a[0]).openStream().readAllBytes())); } }`
	must(t, os.WriteFile(filepath.Join(dir, "Get.java"), []byte(source), 0o644))
	if out, err := exec.Command("javac", "-nowarn", "-d", dir, filepath.Join(dir, "Get.java")).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v: %s", err, out)
	}
	flags = []string{"--bind", dir + ":/opt/java"}
	all, _ := filepath.Glob("/etc/java-*")
	for _, d := range all {
		flags = append(flags, "--bind", d)
	}
	return flags
}

// Programs reach what is on the list without any setting, and nothing else.
func TestClients(t *testing.T) {
	needNode(t)
	all := here(t, clients, false)
	at := mark(t)
	tried(t, all, job(t, append(list(), javaFlags(t)...), "bash", "-c", prelude(false)+scripts(all, "allowed", "denied")),
		map[string]bool{"allowed": true, "denied": false})
	onlyAllowed(t, at)
}

// The proxy door alone: for whoever heeds http_proxy.
func TestClientsProxy(t *testing.T) {
	needNode(t)
	all := here(t, clients, true)
	at := mark(t)
	tried(t, all, alone(t, list(), "bash", "-c", prelude(true)+`test -n "$http_proxy" || echo no proxy; `+scripts(all, "allowed", "denied")),
		map[string]bool{"allowed": true, "denied": false})
	onlyAllowed(t, at)
}

// Without a list the other site answers the same programs: it is the list that refuses them.
func TestClientsOpen(t *testing.T) {
	needNode(t)
	all := slices.DeleteFunc(here(t, clients, false), func(c client) bool { return c.allowed != "" })
	tried(t, all, job(t, append([]string{"--network", "open"}, javaFlags(t)...), "bash", "-c", prelude(false)+scripts(all, "denied")),
		map[string]bool{"denied": true})
}
