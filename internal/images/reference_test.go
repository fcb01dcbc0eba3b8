package images

import (
	"strings"
	"testing"

	"berth/internal/sys/run"
	"berth/jobs"
)

func TestSettle(t *testing.T) {
	zeros := strings.Repeat("0", 64)
	for in, want := range map[string]string{
		"debian:12": "docker://debian:12", "registry.example.org/a/b@sha256:" + zeros: "docker://registry.example.org/a/b@sha256:" + zeros, "registry.example.org/a/b@sha256:00": "", "docker://x": "docker://x", "oras://h/x:1": "oras://h/x:1",
		"/a/b.sif": "/a/b.sif", "/a//b/": "/a/b", "docker-archive:/x.tar": "docker-archive:/x.tar", "library://a/b/c:1": "library://a/b/c:1",
		"": "", "x.sif": "", "./x": "", "../x": "", "--help": "", "ftp://x/y": "", "docker-archive:x.tar": "", "oci-archive://x.tar": "", "https://h/x.sif": "https://h/x.sif", "https://user:pw@h/x.sif": "", "http://token@h:1/x.sif": "", "https://h/a@b.sif": "https://h/a@b.sif", "a b": "", "docker://a\nb": "",
	} {
		got, err := Settle(in)
		if got != want || (err == nil) != (want != "") || err != nil && jobs.KindOf(err) != jobs.KindUsage {
			t.Errorf("%q: %q, %v", in, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "pw") {
			t.Errorf("a password is repeated: %v", err)
		}
	}
}

func TestParseName(t *testing.T) {
	zeros := "sha256:" + strings.Repeat("0", 64)
	for in, want := range map[string]Name{
		"docker://debian:12":                 {"docker", "docker.io", "library/debian", "12", ""},
		"docker://a/b":                       {"docker", "docker.io", "a/b", "latest", ""},
		"docker://localhost/x:1":             {"docker", "localhost", "x", "1", ""},
		"oras://h.example:5000/a/b@" + zeros: {"oras", "h.example:5000", "a/b", "", zeros},
		"docker://[::1]:5000/a:t@" + zeros:   {"docker", "[::1]:5000", "a", "t", zeros},
	} {
		got, err := ParseName(in)
		if got != want || err != nil {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for host, want := range map[string]bool{"localhost": true, "localhost:1": true, "127.0.0.1:5000": true, "[::1]:80": true, "[::1]": true, "127.9.9.9": true, "127.evil.example": false, "127.0.0.1.evil.example:80": false, "127.0.0.1x": false, "example.org": false, "localhost.example.org": false} {
		if (Name{Host: host}).Loopback() != want {
			t.Error(host)
		}
	}
	if got := (Name{Scheme: "docker", Host: "docker.io", Repo: "library/debian", Tag: "12"}).At(zeros); got != "docker://docker.io/library/debian@"+zeros {
		t.Error(got)
	}
}

// What Apptainer 1.4.5 and registries have said.
func TestFetchError(t *testing.T) {
	const docker = "FATAL:   While performing build: conveyor failed to get: "
	for text, want := range map[string]jobs.Kind{
		docker + "error reading the docker archive file: open /nonexistent.tar: no such file or directory":                                    jobs.KindNotFound,
		docker + "error reading the docker archive file: archive/tar: invalid tar header":                                                     jobs.KindUsage,
		docker + "could not parse reference: nope.invalid/x:1":                                                                                jobs.KindUsage,
		docker + `pinging container registry 127.0.0.1:9: Get "https://127.0.0.1:9/v2/": dial tcp 127.0.0.1:9: connection refused`:            jobs.KindInfra,
		docker + "initializing source docker://x: reading manifest latest in docker.io/library/x: requested access to the resource is denied": jobs.KindAuth,
		docker + "reading manifest 99 in docker.io/library/debian: manifest unknown":                                                          jobs.KindNotFound,
		docker + "toomanyrequests: You have reached your unauthenticated pull rate limit":                                                     jobs.KindAgain,
		"FATAL:   Unable to get library client configuration: remote has no library client (see https://apptainer.org/docs)":                  jobs.KindConfig,
		"FATAL:   While performing build: write /x: no space left on device":                                                                  jobs.KindInfra,
		docker + "GET https://172.27.0.1:40491/v2/a/blobs/sha256:4041429: unexpected status code 500 Internal Server Error":                   jobs.KindInfra,
		docker + "GET https://10.0.0.1:5000/v2/a/manifests/sha256:1: unexpected status code 404 Not Found":                                    jobs.KindNotFound,
		docker + "GET https://10.0.0.1:4290/v2/a/manifests/1: unexpected status code 401 Unauthorized":                                        jobs.KindAuth,
		docker + "reading blob sha256:401: fetching blob: received unexpected HTTP status: 429 Too Many Requests":                             jobs.KindAgain,
		docker + "fetching blob: received unexpected HTTP status: 503":                                                                        jobs.KindInfra,
		"FATAL:   something new": jobs.KindInfra,
	} {
		err := tool.fetchError("docker://registry.example.org/x/y:1", &run.Error{Argv: []string{"apptainer"}, Exit: jobs.Exit{Started: true, Code: 255}, Stderr: "INFO:    Fetching OCI image...\n" + text})
		if jobs.KindOf(err) != want || jobs.HintOf(err) == "" || strings.Contains(err.Error(), "INFO") || strings.Contains(err.Error(), "FATAL") {
			t.Errorf("%s: %v: %v (%s)", text, jobs.KindOf(err), err, jobs.HintOf(err))
		}
	}
}
