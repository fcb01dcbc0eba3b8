//go:build docker

package docker_test

import (
	"strings"
	"testing"

	"berth/jobs"
)

// TestContained looks at the container from inside.
func TestContained(t *testing.T) {
	e := plan(t, func(s *jobs.EnvSpec) { s.Resources.Memory = jobs.GiB }).open()
	e.want("cat /proc/1/comm; id -u; pwd; echo $HOME", "node\n0\n/\n/root")
	status, _ := e.sh("grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status | tr '\\t' ' '")
	if status != "CapEff: 00000000000000eb\nCapBnd: 00000000000000eb\nNoNewPrivs: 1" {
		t.Error(status)
	}
	e.want(`df -Pk /tmp /var/tmp /run | awk 'NR > 1 {print $2, $6}'`, "524288 /tmp\n262144 /var/tmp\n65536 /run")
	e.want(`grep -E ' (/tmp|/var/tmp|/run) ' /proc/mounts | awk '{print $2, ($4 ~ /noexec/), ($4 ~ /nosuid,nodev/)}' | sort`, "/run 1 1\n/tmp 0 1\n/var/tmp 1 1")
	e.want(`tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '`, "lo")
	e.want(`touch /.berth/x 2>&1 | grep -o 'Read-only.*'; env | grep -c '^DOCKER'`+" || true", "Read-only file system\n0")
	if out, code := e.sh("dd if=/dev/zero of=/tmp/big bs=1M count=600 2>&1"); code == 0 || !strings.Contains(out, "No space left") {
		t.Errorf("a full /tmp: exit %d: %s", code, out)
	}
	// What root inside is for: users, owners, files of others.
	e.want("chown 33:33 /opt && su -s /bin/sh www-data -c 'id -un; touch /opt/x' && rm /opt/x && echo ok", "www-data\nok")
	if out, code := e.sh("mount -t tmpfs x /mnt"); code == 0 {
		t.Error(out)
	}
}

// TestLimits has each limit reached.
func TestLimits(t *testing.T) {
	e := plan(t, func(s *jobs.EnvSpec) { s.Docker = &jobs.DockerSpec{Pids: 64, Shm: 16 * jobs.MiB} }).open()
	out, _ := e.sh(`n=0; for i in $(seq 200); do sleep 30 & done 2>&1 | head -3; jobs -p | wc -l`)
	if !strings.Contains(out, "Resource temporarily unavailable") {
		t.Errorf("a fork bomb: %s", out)
	}
	if left, err := e.session.End(t.Context(), 0); left != 0 || err != nil {
		t.Errorf("%d processes are left: %v", left, err)
	}
	// One that eats memory is killed, and the guest lives on.
	if out, code := e.sh(`python3 -c 'x = bytearray(400 << 20); print(len(x))' 2>/dev/null || head -c 400M /dev/zero | tail | wc -c`); strings.Contains(out, "41943") {
		t.Errorf("more memory than the limit was had: exit %d: %s", code, out)
	}
	e.want("echo alive", "alive")
	kills, _ := e.sh(`cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2>/dev/null | awk '$1 == "oom_kill" {print ($2 > 0)}'`)
	if kills != "1" {
		t.Errorf("no kill was counted: %q", kills)
	}
	// Two busy loops get one CPU.
	cpu, _ := e.sh(`cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null`)
	if cpu != "100000" && cpu != "100000 100000" {
		t.Error(cpu)
	}
	used, _ := e.sh(`TIMEFORMAT='%R %U'; time (timeout 2 sh -c 'while :; do :; done' & timeout 2 sh -c 'while :; do :; done' & wait) 2>&1`)
	t.Log("two loops on one CPU (real, user seconds):", used)
	e.want("df -Pk /dev/shm | awk 'NR > 1 {print $2}'", "16384")
	e.want("swapon --show 2>/dev/null; cat /sys/fs/cgroup/memory.swap.max 2>/dev/null || echo $(( $(cat /sys/fs/cgroup/memory/memory.memsw.limit_in_bytes) - $(cat /sys/fs/cgroup/memory/memory.limit_in_bytes) ))", "0")
}

// TestDiskLimit: this daemon's storage may not have it, and then it is not
// dropped in silence.
func TestDiskLimit(t *testing.T) {
	e := plan(t, func(s *jobs.EnvSpec) { s.Resources.Disk = jobs.GiB })
	if _, err := e.prepare(); err != nil && (jobs.KindOf(err) != jobs.KindConfig || jobs.HintOf(err) == "") {
		t.Error(err)
	} else if err == nil {
		t.Log("the storage driver here bounds files")
	}
	e = plan(t, func(s *jobs.EnvSpec) { s.Resources.Disk, s.Defaulted = jobs.GiB, []string{"disk"} }).open()
	t.Log(e.opening.Notes)
	e = plan(t, func(s *jobs.EnvSpec) { s.Resources.Disk, s.Defaulted, s.Strict = jobs.GiB, []string{"disk"}, true })
	if _, err := e.prepare(); err != nil && jobs.KindOf(err) != jobs.KindConfig {
		t.Error(err)
	}
}

// TestUser: the user's own number inside, without any capability, with a HOME
// that persists.
func TestUser(t *testing.T) {
	e := plan(t, func(s *jobs.EnvSpec) { s.Docker = &jobs.DockerSpec{User: "33:33"} }).open()
	e.want(`id -u; grep -E '^CapEff|^CapPrm' /proc/self/status | cut -f2 | sort -u; [ -w "$HOME" ] && echo home`, "33\n0000000000000000\nhome")
	if out, code := e.sh("touch /opt/x"); code == 0 {
		t.Error(out)
	}
}
