package docker

import (
	"strings"
	"testing"

	"berth/jobs"

	"github.com/google/go-cmp/cmp"
)

const guest = "/home/alice/.local/state/berth/bin/berth-node-0123"

func words(s string) []string { return strings.Fields(s) }

func TestJobArgv(t *testing.T) {
	const (
		head   = "docker run --rm -i --name berth-fix-0123456789ab --label berth.version=1 --label berth.attempt=berth-fix-0123456789ab"
		common = "--log-driver none --stop-signal KILL --no-healthcheck --restart no --cap-drop ALL"
		caps   = "--cap-add CHOWN --cap-add DAC_OVERRIDE --cap-add FOWNER --cap-add SETGID --cap-add SETUID --cap-add KILL"
		nnp    = "--security-opt no-new-privileges"
		tmpfs  = "--tmpfs /tmp:rw,nosuid,nodev,exec,size=512m --tmpfs /var/tmp:rw,nosuid,nodev,noexec,size=256m --tmpfs /run:rw,nosuid,nodev,noexec,size=64m"
		start  = "--workdir / --entrypoint /.berth/node --pids-limit 256"
		mount  = "--mount type=bind,source=" + guest + ",destination=/.berth/node,readonly"
	)
	for name, c := range map[string]struct {
		place jobs.Invocation
		want  []string
	}{
		"plain": {jobs.Invocation{}, words(strings.Join([]string{head, common, caps, nnp, tmpfs, start, mount, "debian:12 guest"}, " "))},
		"a user has no capability": {jobs.Invocation{User: "1000:1000"},
			words(strings.Join([]string{head, common, "--user 1000:1000", nnp, tmpfs, start, mount, "debian:12 guest"}, " "))},
		"root is one that has": {jobs.Invocation{User: "0:0"},
			words(strings.Join([]string{head, common, caps, "--user 0:0", nnp, tmpfs, start, mount, "debian:12 guest"}, " "))},
		"limits": {jobs.Invocation{Place: jobs.Place{Resources: jobs.Resources{CPUs: 2, Memory: jobs.GiB}, Network: jobs.Network{Mode: "none"}, GPU: "nvidia"}},
			words(strings.Join([]string{head, common, caps, nnp, tmpfs, start, "--cpus 2 --memory 1073741824 --memory-swap 1073741824 --network none --gpus all", mount, "debian:12 guest"}, " "))},
		"hostname": {jobs.Invocation{Place: jobs.Place{Hostname: "box", Network: jobs.Network{Mode: "none"}}},
			words(strings.Join([]string{head, common, caps, nnp, tmpfs, start, "--hostname box --network none", mount, "debian:12 guest"}, " "))},
		"mounts": {jobs.Invocation{Place: jobs.Place{Mounts: []jobs.Mount{{Source: "/a,b:c", Destination: "/work", Writable: true}, {Source: "/t", Destination: "/tmp/"}}}},
			append(words(strings.Join([]string{head, common, caps, nnp, strings.Join(words(tmpfs)[2:], " "), start, mount}, " ")),
				"--mount", `type=bind,"source=/a,b:c",destination=/work`, "--mount", "type=bind,source=/t,destination=/tmp/,readonly", "debian:12", "guest")},
	} {
		t.Run(name, func(t *testing.T) {
			c.place.Name, c.place.Image, c.place.Guest = "berth-fix-0123456789ab", "debian:12", guest
			got, err := (&Backend{}).Argv(c.place, []string{"guest"})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestArgvRefuses(t *testing.T) {
	bind := func(src, dst string) jobs.Invocation {
		return jobs.Invocation{Place: jobs.Place{Mounts: []jobs.Mount{{Source: src, Destination: dst}}}}
	}
	for name, p := range map[string]jobs.Invocation{
		"the socket":                    bind("/var/run/docker.sock", "/x"),
		"its directory":                 bind("/var/run/", "/x"),
		"the root":                      bind("/", "/x"),
		"podman's":                      bind("/run/user/1000/podman/podman.sock", "/x"),
		"a line break":                  bind("/a\nb", "/x"),
		"relative":                      bind("a", "/x"),
		"over the guest":                bind("/a", "/.berth/node"),
		"over /proc":                    bind("/a", "/x/../proc/sys"),
		"over the root":                 bind("/a", "//"),
		"an unknown GPU":                {Place: jobs.Place{GPU: "abacus"}},
		"an unknown network":            {Place: jobs.Place{Network: jobs.Network{Mode: "bridge"}}},
		"a flag for an image":           {Place: jobs.Place{Image: "--privileged"}},
		"a file for an image":           {Place: jobs.Place{Image: "./py.sif"}},
		"an image with a scheme":        {Place: jobs.Place{Image: "docker://debian"}},
		"an image with a line break":    {Place: jobs.Place{Image: "debian\n"}},
		"an image with a blank in it":   {Place: jobs.Place{Image: "debian --privileged"}},
		"an absolute path for an image": {Place: jobs.Place{Image: "/images/py"}},
	} {
		p.Name, p.Guest = "n", guest
		if p.Image == "" {
			p.Image = "debian:12"
		}
		if argv, err := (&Backend{}).Argv(p, nil); err == nil || jobs.KindOf(err) == jobs.KindUnknown || jobs.HintOf(err) == "" && !strings.Contains(err.Error(), "absolute") {
			t.Errorf("%s: %q, %v", name, argv, err)
		}
	}
}

func TestVolumes(t *testing.T) {
	for word, ok := range map[string]bool{
		"/data:/data":                true,
		"/data:/data:ro":             true,
		"cache:/root/.cache:rw,z":    true,
		"/anonymous":                 true,
		"/a:/b:shared":               false,
		"/a:/b:ro:rw":                false,
		"/a:b":                       false,
		"../a:/b":                    false,
		":/b":                        false,
		"":                           false,
		"/a:/":                       false,
		"/a:/dev/sda":                false,
		"/var/run/docker.sock:/sock": false,
		"/run:/run":                  false,
		"/:/host:ro":                 false,
		"/a\x1b:/b":                  false,
		"-v:/b":                      false,
	} {
		if _, err := parseVolume(word); (err == nil) != ok || err != nil && jobs.HintOf(err) == "" {
			t.Errorf("%q: %v", word, err)
		}
	}
}

func TestExtraArgs(t *testing.T) {
	for text, ok := range map[string]bool{
		"--hostname x --ulimit nofile=100 -p 8080:80 --init":    true,
		"--dns=1.1.1.1 --read-only --tmpfs /scratch:size=1g":    true,
		"--network mine --cap-add NET_RAW --cap-add=CAP_MKNOD":  true,
		"--device /dev/kvm --device=/dev/nvidia0 --label a=b":   true,
		"--security-opt label=type:x --device nvidia.com/gpu=0": true,
		"--privileged":                           false,
		"--privileged=true":                      false,
		"--cap-add ALL":                          false,
		"--cap-add=SYS_ADMIN":                    false,
		"--cap-add sys_ptrace":                   false,
		"--pid host":                             false,
		"--pid=host":                             false,
		"--ipc=host":                             false,
		"--uts host":                             false,
		"--userns=host":                          false,
		"--cgroupns host":                        false,
		"--ipc container:x":                      false,
		"--security-opt seccomp=unconfined":      false,
		"--security-opt=apparmor:unconfined":     false,
		"--security-opt systempaths=unconfined":  false,
		"--security-opt no-new-privileges=false": false,
		"--security-opt no-new-privileges=f":     false,
		"--security-opt no-new-privileges:0":     false,
		"--security-opt=no-new-privileges:F":     false,
		"--security-opt seccomp=/etc/all.json":   false,
		"--security-opt label=disable":           false,
		"--security-opt label:disable":           false,
		"--security-opt label=type:spc_t":        false,
		"--security-opt unmask=ALL":              false,
		"--security-opt apparmor=mine --security-opt no-new-privileges:true --security-opt seccomp=builtin": true,
		"--device /dev/sda":                    false,
		"--device /dev/dri/../sda":             false,
		"-v /var/run/docker.sock:/x":           false,
		"--mount type=bind,source=/,target=/x": false,
		"--volumes-from x":                     false,
		"-e TOKEN=x":                           false,
		"--memory 100g":                        false,
		"--pids-limit=-1":                      false,
		"--label berth.env=x":                  false,
		"-lberth.env=x":                        false,
		"--name x":                             false,
		"--rm":                                 false,
		"-it":                                  false,
		"--entrypoint sh":                      false,
		"--restart always":                     false,
		"--tmpfs /.berth":                      false,
		"--hostname":                           false,
		"debian":                               false,
		"--hostname x debian sh":               false,
		"--":                                   false,
	} {
		if _, err := checkExtra(words(text), ""); (err == nil) != ok || err != nil && (jobs.KindOf(err) != jobs.KindConfig || jobs.HintOf(err) == "") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := checkExtra([]string{"--network=host"}, "none"); err == nil || !strings.Contains(err.Error(), "contradicts") {
		t.Error(err)
	}
	if _, err := checkExtra([]string{"--network", "none"}, "none"); err != nil {
		t.Error(err)
	}
}
