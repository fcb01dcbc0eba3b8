package bwrap

import (
	"slices"
	"strings"
	"testing"

	"berth/jobs"
)

func TestRender(t *testing.T) {
	in := jobs.Invocation{Guest: "/n/node", Place: jobs.Place{Network: jobs.Network{Mode: "none"}, Hostname: "box", Mounts: []jobs.Mount{
		{Source: "/s/work", Destination: jobs.WorkDir, Writable: true}, {Source: "/data", Destination: "/data"},
	}}}
	o := own{home: "/s/home", inside: "/home/a", tmp: "/s", etc: "/s", keys: true, mounts: []jobs.Mount{{Source: "/e/io", Destination: "/.berth/io"}}}
	got, err := render("/usr/bin/bwrap", in, o, []jobs.Mount{{Source: "/empty", Destination: "/data/private"}}, []string{"guest"})
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Join(got, " ")
	for _, want := range []string{
		"/usr/bin/bwrap --unshare-user --unshare-pid --unshare-ipc --unshare-uts --die-with-parent --new-session --clearenv --cap-drop ALL --hostname box --unshare-net ",
		" --ro-bind-try /usr /usr ", " --proc /proc --ro-bind-try /proc/sys /proc/sys --dev /dev --ro-bind /dev/null /proc/keys ",
		" --ro-bind /s/passwd /etc/passwd ", " --bind /s/tmp /tmp --bind /s/var_tmp /var/tmp --bind /s/home /home/a ",
		" --ro-bind /n/node /.berth/node --ro-bind /e/io /.berth/io --bind /s/work /work --ro-bind /data /data --ro-bind /empty /data/private --remount-ro / ",
		" -- /.berth/node guest",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("%s lacks %q", line, want)
		}
	}
	// Private keys stand beside the certificates.
	if slices.Contains(got, "/etc/ssl") || slices.Contains(got, "/etc") {
		t.Error(line)
	}
}

func TestRefuse(t *testing.T) {
	for name, p := range map[string]jobs.Place{
		"image": {Image: "/i.sif"}, "overlay": {Overlay: jobs.OverlaySpec{Name: "o"}}, "driver": {Overlay: jobs.OverlaySpec{Driver: jobs.DriverFuse}},
		"disk": {Resources: jobs.Resources{Disk: jobs.GiB}}, "gpu": {GPU: "nvidia"}, "fakeroot": {Fakeroot: true}, "docker": {Docker: &jobs.DockerSpec{}},
		"network": {Network: jobs.Network{Mode: "bridge"}}, "root": {Mounts: []jobs.Mount{{Source: "/x", Destination: "/"}}}, "guest": {Mounts: []jobs.Mount{{Source: "/x", Destination: "/.berth/node"}}},
		"proc": {Mounts: []jobs.Mount{{Source: "/x", Destination: "/proc/../proc/1"}}},
	} {
		if _, err := (&Backend{}).Argv(jobs.Invocation{Guest: "/n", Place: p}, nil); jobs.KindOf(err) == jobs.KindUnknown || jobs.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (&Backend{}).Argv(jobs.Invocation{Guest: "/n", Place: jobs.Place{Mounts: []jobs.Mount{{Source: "/x", Destination: "/dev/shm"}}}}, nil); err != nil {
		t.Error(err)
	}
}

// HOME is the user's own path, but where that is the host's.
func TestHome(t *testing.T) {
	for home, want := range map[string]string{"/home/a": "/home/a", "/root": "/root", "/": "/home/a-b", "/usr/games": "/home/a-b", "": "/home/a b", "/tmp": "/home/a-b", "/tmp/x": "/tmp/x"} {
		t.Setenv("HOME", home)
		if got := homeOf(&jobs.EnvSpec{User: "a b"}); got != want {
			t.Errorf("%q: %q, want %q", home, got, want)
		}
	}
}
