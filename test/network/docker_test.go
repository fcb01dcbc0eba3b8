//go:build linux && docker

package network

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"berth/test/fakes/internet"
)

// inDocker are the flags of a list in a container of docker's, of the image that scripts/testbed has made.
func inDocker(t *testing.T) []string {
	t.Helper()
	needNode(t)
	out, err := exec.Command("docker", "images", "--format", "{{.Repository}}:{{.Tag}}", "berth-testbed-base").Output()
	if err != nil || len(strings.Fields(string(out))) == 0 {
		t.Fatalf("no image berth-testbed-base, or no daemon; scripts/testbed images makes it: %v", err)
	}
	return append(list(), "--backend", "docker", "--image", strings.Fields(string(out))[0])
}

// What the image has of the clients, and what needs nothing of it, by the proxy door: a room needs more
// than docker's own filter of system calls lets through.
func TestDockerClients(t *testing.T) {
	flags := inDocker(t)
	all := slices.DeleteFunc(here(t, clients, true), func(c client) bool {
		return !slices.Contains([]string{"python", "Go", "git", "git, a clone"}, c.name)
	})
	at := mark(t)
	tried(t, all, job(t, flags, "bash", "-c", prelude(true)+scripts(all, "allowed", "denied")), map[string]bool{"allowed": true, "denied": false})
	onlyAllowed(t, at)
}

// As root inside, beside the proxy and through it.
func TestDockerEscapes(t *testing.T) {
	flags := inDocker(t)
	at := mark(t)
	// It is of the same user there, and a limit ends the task's own attempt.
	escape(t, flags, []string{"limits of the first process"}, "-many", "0", "-skip",
		"signals to the first process,one of several addresses")
	heard(t, job(t, flags, "sh", "-c", "/opt/bin/probe "+strings.Join(probeArgs("-proxy", "${http_proxy#http://}"), " ")), nil)
	onlyAllowed(t, at)
}

// A task asks a model with a key that it does not have.
func TestDockerCredentials(t *testing.T) {
	config, _ := configured(t, 0)
	flags := slices.Concat([]string{"XDG_CONFIG_HOME=" + config, "TEST_MODEL_KEY=" + internet.ModelKey}, inDocker(t), []string{"--credential", "openai"})
	got := job(t, flags, "python3", "-c", `import os, urllib.request as u
print(u.urlopen(u.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", data=b'{"model":"m-1","messages":[]}',
    headers={"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}), timeout=20).read())`)
	if got.code != 0 || !strings.Contains(got.out, "one two three") {
		t.Errorf("%+v", got)
	}
}
