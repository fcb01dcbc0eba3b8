package doctor_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"berth/internal/config/profile"
	"berth/internal/doctor"
	"berth/jobs"

	"github.com/google/go-cmp/cmp"
)

// found is a place with these findings: "id key value status".
func found(where, host string, lines ...string) *doctor.Place {
	p := &doctor.Place{Version: doctor.Version, Where: where, Host: host, Time: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}
	for _, l := range lines {
		f := strings.SplitN(l, " ", 4)
		p.Findings = append(p.Findings, doctor.Finding{ID: f[0], Status: doctor.Status(f[3]), Why: "why of " + f[0], Data: map[string]string{f[1]: f[2]}})
	}
	return p
}

// broken is a place whose first finding is of what berth is to use.
func broken(p *doctor.Place) *doctor.Place {
	p.Findings[0].Configured = true
	return p
}

// TestProfile: what is written can be read, and says what was found.
func TestProfile(t *testing.T) {
	for _, c := range []struct {
		name       string
		here, node *doctor.Place
		want       jobs.Profile
		remarks    []string
	}{
		{name: "nothing", here: found("here", "laptop")},
		{name: "plain",
			here: found("here", "login", "scheduler name slurm ok", "slurm.programs version 24.11.5 ok", "slurm.partitions default main ok", "slurm.partitions partitions main,gpu ok"),
			node: found("node", "c1", "apptainer.program version 1.4.5-1.el9 ok", "overlay.kernel works no warn", "overlay.fuse works yes ok", "overlay.ext3 works yes ok", "gpus kind amd ok"),
			want: jobs.Profile{Scheduler: "slurm", GPU: "amd", Versions: jobs.Versions{Slurm: "24.11.5", Apptainer: "1.4.5"}}, remarks: []string{`# partition = "main"`, "with a look at node c1"}},
		{name: "kernel on the node",
			here: found("here", "login", "scheduler name slurm ok", "overlay.kernel works no warn"), node: found("node", "c1", "overlay.kernel works yes ok", "overlay.fuse works no warn", "overlay.ext3 works yes ok"),
			want: jobs.Profile{Scheduler: "slurm", Overlay: "kernel"}, remarks: []string{"# Tried on node c1: an overlay of the kernel"}},
		{name: "no look at a node", here: found("here", "login", "scheduler name slurm ok", "overlay.kernel works yes ok"),
			want: jobs.Profile{Scheduler: "slurm"}, remarks: []string{`# overlay = "kernel"`, "--on-node"}},
		{name: "without Slurm", here: found("here", "laptop", "scheduler name local ok", "overlay.kernel works yes ok"),
			want: jobs.Profile{Scheduler: "local", Overlay: "kernel"}, remarks: []string{"# Tried on this machine"}},
		{name: "unkind",
			here: found("here", "login", "scheduler name slurm ok", "slurm.programs version 23.02.7 ok", "slurm.partitions partitions batch,gpu warn", "slurm.partitions whole_nodes yes warn",
				"slurm.account accounts phys-12 ok", "slurm.account enforced yes ok", "slurm.gpus types a100 ok", "slurm.memory counted no warn"),
			node: found("node", "n1", "modules containers singularity/3.8,apptainer/1.4.5 ok", "overlay.fuse works no warn", "overlay.ext3 works yes ok", "gpus kind nvidia ok",
				"scratch kind tmpfs warn", "network https_proxy http://proxy:3128 ok", "network no_proxy localhost,.x ok", "state noexec yes fail"),
			want: jobs.Profile{Scheduler: "slurm", Modules: []string{"apptainer/1.4.5"}, Overlay: "ext3", GPU: "nvidia", GPUType: "a100", Proxy: jobs.Proxy{HTTPS: "http://proxy:3128", No: "localhost,.x"},
				Slurm: jobs.SlurmOptions{Partition: "batch", Account: "phys-12", Extra: []string{"--exclusive"}}, Versions: jobs.Versions{Slurm: "23.02.7"}},
			remarks: []string{`# scratch = "/local/$USER"`, `# forbid = ["mem"]`, "no default route", "set BERTH_HOME"}},
		{name: "refuses --mem",
			here: found("here", "login", "scheduler name slurm ok", "slurm.memory counted no warn"), node: found("node", "n1", "node forbid mem warn"),
			want: jobs.Profile{Scheduler: "slurm", Forbid: []string{"mem"}}},
		{name: "refuses two, and wants an account", here: found("here", "login", "scheduler name slurm ok", "slurm.account accounts research ok"),
			node: found("node", "n1", "node forbid requeue warn", "node forbid dependency warn", "node account research warn"),
			want: jobs.Profile{Scheduler: "slurm", Forbid: []string{"requeue", "dependency"}, Slurm: jobs.SlurmOptions{Account: "research"}}},
		{name: "a node that does not work", here: found("here", "login", "scheduler name slurm ok"), node: broken(found("node", "n1", "backend name singularity fail")),
			want: jobs.Profile{Scheduler: "slurm"}, remarks: []string{"# NOT WORKING on n1 when this was written: : why of backend.\n"}},
		{name: "module in a file of its own", here: found("here", "login", "scheduler name slurm ok", "modules init /etc/profile.d/zz.sh ok"), node: found("node", "n1", "modules containers apptainer/1.4.5 ok"),
			want: jobs.Profile{Scheduler: "slurm", Modules: []string{"apptainer/1.4.5"}, ModuleInit: "/etc/profile.d/zz.sh"}},
		{name: "hostile",
			here: found("here", "login\n[slurm]\nx = 1", "scheduler name slurm ok", "slurm.partitions partitions a\"b\nc,d ok", "slurm.account accounts $(id) ok", "slurm.account enforced yes ok"),
			want: jobs.Profile{Scheduler: "slurm"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := doctor.Profile("lake", c.here, c.node)
			p, err := profile.Parse("lake.toml", []byte(text))
			if c.name == "hostile" {
				// Names with line breaks are none: what matters is that they stay in their strings.
				if err == nil || !strings.Contains(err.Error(), "slurm.partition holds a control character") || strings.Contains(err.Error(), "unknown key") {
					t.Errorf("%v\n%s", err, text)
				}
				return
			}
			c.want.Name = "lake"
			if d := cmp.Diff(c.want, p); err != nil || d != "" {
				t.Errorf("%v\n%s\n%s", err, d, text)
			}
			for _, r := range c.remarks {
				if !strings.Contains(text, r) {
					t.Errorf("no %q in\n%s", r, text)
				}
			}
		})
	}
}

// TestDocs: the page has a row for each check, with the table's words, and no
// other.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, c := range doctor.Checks() {
		want = append(want, "| `"+c.ID+"` | "+c.Name+" | "+c.About+" |")
	}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `") && strings.Count(line, " | ") == 2 {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestBeside(t *testing.T) {
	a := found("here", "login", "git v 1 ok", "state v 1 ok", "slurm.programs v 1 ok")
	b := found("node", "c1", "git v 1 ok", "state v 1 fail", "gpus v 1 ok")
	var got []string
	for _, l := range doctor.Beside([]*doctor.Place{a, b}) {
		got = append(got, l.Where+" "+l.ID+" "+string(l.Status))
	}
	want := []string{"both git ok", "here state ok", "node c1 state fail", "here slurm.programs ok", "node c1 gpus ok"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if one := doctor.Beside([]*doctor.Place{a}); len(one) != 3 || one[0].Where != "here" {
		t.Errorf("%+v", one)
	}
}
