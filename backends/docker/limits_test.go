package docker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
)

func TestParseInfo(t *testing.T) {
	for file, want := range map[string]can{
		"info-docker-20.10.json": {memory: true, swap: true, cpus: true, pids: true},
		"info-rootless.json":     {rootless: true},
		"info-xfs.json":          {memory: true, cpus: true, pids: true, disk: true},
		"info-podman.json":       {podman: true, rootless: true, memory: true, swap: true, pids: true},
	} {
		b, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseInfo(string(b))
		if got.why == "" {
			t.Errorf("%s: no reason", file)
		}
		if got.why = ""; err != nil || got != want {
			t.Errorf("%s: %+v, %v", file, got, err)
		}
	}
	if c, err := parseInfo(`{"SecurityOptions":["name=seccomp,profile=default","name=userns"]}`); err != nil || !c.remapped || c.rootless {
		t.Errorf("%+v, %v", c, err)
	}
	for _, out := range []string{"", "{", `{"ServerErrors":["Cannot connect"]}`} {
		if c, err := parseInfo(out); err == nil {
			t.Errorf("%q: %+v", out, c)
		}
	}
}

func TestSettle(t *testing.T) {
	s := &jobs.EnvSpec{Place: jobs.Place{Resources: jobs.Resources{CPUs: 1, Memory: jobs.GiB, Disk: jobs.GiB}}}
	all := can{memory: true, swap: true, cpus: true, pids: true, disk: true}
	for name, c := range map[string]struct {
		can       can
		defaulted string
		strict    bool
		flags     string
		notes     int
		refused   string
	}{
		"all held":                 {can: all, flags: "--pids-limit 256 --cpus 1 --memory 1073741824 --memory-swap 1073741824 --storage-opt size=1073741824"},
		"nothing held, asked for":  {refused: "cpus 1 cannot be held"},
		"defaults are dropped":     {defaulted: "cpus memory disk", notes: 4},
		"strict drops none":        {defaulted: "cpus memory disk", strict: true, refused: "pids 256 cannot be held"},
		"a disk that was asked":    {can: can{memory: true, swap: true, cpus: true, pids: true}, defaulted: "cpus memory", refused: "disk 1GiB cannot be held"},
		"swap is told":             {can: can{memory: true, cpus: true, pids: true, disk: true}, flags: "--pids-limit 256 --cpus 1 --memory 1073741824 --storage-opt size=1073741824", notes: 1},
		"swap, strict":             {can: can{memory: true, cpus: true, pids: true, disk: true}, strict: true, refused: "swap none cannot be held"},
		"strict, and all are held": {can: all, strict: true, flags: "--pids-limit 256 --cpus 1 --memory 1073741824 --memory-swap 1073741824 --storage-opt size=1073741824"},
	} {
		s.Defaulted = strings.Fields(c.defaulted)
		flags, notes, err := settle(limits(s, jobs.DockerSpec{}, c.can), c.strict)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) || jobs.KindOf(err) != jobs.KindConfig || jobs.HintOf(err) == "" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || strings.Join(flags, " ") != c.flags || len(notes) != c.notes {
			t.Errorf("%s: %q %q %v", name, flags, notes, err)
		}
	}
}

func TestPullError(t *testing.T) {
	for text, want := range map[string]jobs.Kind{
		`manifest for debian:nope not found: manifest unknown: manifest unknown`:                                                                        jobs.KindNotFound,
		`pull access denied for nope/nope, repository does not exist or may require 'docker login': denied: requested access to the resource is denied`: jobs.KindAuth,
		`Get "https://reg.example/v2/x/manifests/1": unauthorized: authentication required`:                                                             jobs.KindAuth,
		`Get "https://reg.invalid/v2/": dial tcp: lookup reg.invalid on 10.0.0.1:53: no such host`:                                                      jobs.KindAgain,
		`Get "http://localhost:1/v2/": dial tcp 127.0.0.1:1: connect: connection refused`:                                                               jobs.KindAgain,
		`toomanyrequests: You have reached your pull rate limit`:                                                                                        jobs.KindAgain,
		`no matching manifest for linux/arm64/v8 in the manifest list entries`:                                                                          jobs.KindConfig,
		`failed to register layer: write /x: no space left on device`:                                                                                   jobs.KindInfra,
		`failed to resolve reference "docker.io/library/nope:1": docker.io/library/nope:1: not found`:                                                   jobs.KindNotFound,
		`something new`: jobs.KindInfra,
	} {
		if err := pullError("reg.example/x:1", text); jobs.KindOf(err) != want || jobs.HintOf(err) == "" {
			t.Errorf("%s: kind %d, hint %q", text, jobs.KindOf(err), jobs.HintOf(err))
		}
	}
}

func TestQualified(t *testing.T) {
	for image, want := range map[string]string{
		"debian:12": "docker.io/library/debian:12", "a/b": "docker.io/a/b", "registry.example.org/a/b:1": "registry.example.org/a/b:1", "localhost/x": "localhost/x", "host:5000/x": "host:5000/x",
	} {
		if got := qualified(image, true); got != want || qualified(image, false) != image {
			t.Errorf("%s: %s", image, got)
		}
	}
}

func TestEnviron(t *testing.T) {
	all := map[string]string{"PATH": "/bin", "DOCKER_HOST": "unix:///x", "HTTPS_PROXY": "http://u:secret@p", "TOKEN": "secret", "LD_PRELOAD": "/x", "SSH_AUTH_SOCK": "/s"}
	got := Environ(func(n string) string { return all[n] })
	if strings.Join(got, " ") != "PATH=/bin DOCKER_HOST=unix:///x" {
		t.Error(got)
	}
}
