//go:build conformance

package mcp

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/conformance.txt")

// serve starts berth mcp on the loopback with all of its tools, and returns its address and token.
func serve(t *testing.T) (address, token string) {
	t.Helper()
	cmd := exec.Command(berth, "mcp", "--listen", "127.0.0.1:0", "--enable", "run", "--enable", "submit", "--env", "suite", "--backend", "local")
	cmd.Env, cmd.Dir = environ(t, "suite"), t.TempDir()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
			t.Errorf("berth mcp ended: %v", err)
		}
	})
	line, err := bufio.NewReader(stderr).ReadString('\n')
	said := regexp.MustCompile(`serving http://(\S+)/, for who has the token in (\S+)`).FindStringSubmatch(line)
	if said == nil {
		t.Fatalf("it says %q: %v", line, err)
	}
	b, err := os.ReadFile(said[2])
	if err != nil {
		t.Fatal(err)
	}
	return said[1], strings.TrimSpace(string(b))
}

// withToken passes requests on to a server, with its token, which the suite cannot send. What
// names the address of this door, as Host or Origin, names the server's behind it.
func withToken(t *testing.T) string {
	t.Helper()
	address, token := serve(t)
	var door *httptest.Server
	door = httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: address})
		_, there, _ := strings.Cut(address, ":")
		_, here, _ := strings.Cut(door.Listener.Addr().String(), ":")
		named := func(s string) string { return strings.Replace(s, ":"+here, ":"+there, 1) }
		r.Out.Host = named(r.In.Host)
		if from := r.In.Header.Get("Origin"); from != "" {
			r.Out.Header.Set("Origin", named(from))
		}
		r.Out.Header.Set("Authorization", "Bearer "+token)
	}})
	t.Cleanup(door.Close)
	return door.URL + "/"
}

// The public conformance suite of the protocol, in all of its versions, says of each check
// what testdata/conformance.txt says; there is why a check does not pass.
func TestConformance(t *testing.T) {
	out := t.TempDir()
	suite := exec.CommandContext(t.Context(), "node", filepath.Join(programs, "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js"),
		"server", "--url", withToken(t), "--suite", "all", "--output-dir", out)
	suite.Env, suite.Dir = environ(t, "none"), out
	suite.Path = filepath.Join(programs, "node_modules", ".bin", "node") // which is newer than Debian's
	said, err := suite.CombinedOutput()
	if suite.ProcessState == nil || suite.ProcessState.ExitCode() > 1 { // 1 is that some check has failed
		t.Fatalf("%v\n%s", err, said)
	}
	files, err := filepath.Glob(filepath.Join(out, "server-*", "checks.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no results: %v\n%s", err, said)
	}
	name := regexp.MustCompile(`^server-(.*)-\d{4}-\d\d-\d\dT[-\d]+Z$`)
	got, why := []string{}, map[string]string{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		if err := json.Unmarshal(b, &checks); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		scenario := name.FindStringSubmatch(filepath.Base(filepath.Dir(file)))
		if scenario == nil {
			t.Fatalf("a directory of results has another name: %s", file)
		}
		for _, c := range checks {
			if c.Status != "INFO" {
				line := fmt.Sprintf("%s %s %s", scenario[1], c.ID, c.Status)
				got, why[line] = append(got, line), c.ErrorMessage
			}
		}
	}
	slices.Sort(got)
	compare(t, got, why)
}

// compare holds results to those of the file: lines of scenario, check, status and, of what has
// not passed, the tag of a reason that the file begins with.
func compare(t *testing.T, got []string, why map[string]string) {
	t.Helper()
	path := filepath.Join("testdata", "conformance.txt")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	head, reasons, tags := "", map[string]bool{}, map[string]string{}
	for line := range strings.Lines(string(b)) {
		if reason, is := strings.CutPrefix(line, "# "); is {
			tag, _, _ := strings.Cut(reason, ":")
			reasons[tag] = true
			head += line
			continue
		}
		words := strings.Fields(line)
		if len(words) < 3 {
			t.Fatalf("%s: %q is no result", path, line)
		}
		key := strings.Join(words[:3], " ")
		want = append(want, key)
		tags[key] = strings.Join(words[3:], " ")
		if passed := words[2] == "SUCCESS"; passed != (tags[key] == "") || !passed && !reasons[tags[key]] {
			t.Errorf("%s: %q has to name a reason, if it has not passed", path, line)
		}
	}
	if *update {
		text := head
		for _, line := range got {
			text += strings.TrimSpace(line+" "+tags[line]) + "\n"
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	count := func(list []string, of string) (n int) {
		for _, s := range list {
			if s == of {
				n++
			}
		}
		return n
	}
	for _, line := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(got, want)))) {
		if g, w := count(got, line), count(want, line); g > w {
			t.Errorf("new: %s: %s", line, why[line])
		} else if g < w {
			t.Errorf("gone: %s", line)
		}
	}
}
