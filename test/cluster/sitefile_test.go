//go:build cluster

package cluster

import (
	"strings"
	"testing"
)

// TestSiteFile: what root has written on a host holds there for alice, whatever she says
// herself: on the login node where a job is planned, on a node where it begins.
func TestSiteFile(t *testing.T) {
	s := standard
	s.need(t)
	s.disturb(t)
	all := []string{"login", "c1", "c2"}
	t.Cleanup(func() { s.root(t, "rm -rf /etc/berth", all...) })
	write := func(text string, hosts ...string) {
		t.Helper()
		s.root(t, "install -d -m 755 /etc/berth; rm -f /etc/berth/site.toml; cat >/etc/berth/site.toml <<'EOF'\n"+text+"EOF\nchmod 644 /etc/berth/site.toml", hosts...)
	}
	d := s.dir(t)
	env := "export BERTH_HOME=" + d + "/state XDG_CONFIG_HOME=" + d + "/config BERTH_SITE_FILE=/nowhere; "
	run := env + "berth run --retry off --memory 300MiB --time 5m --image " + s.image + " "

	write("[site]\ntasks_here = false\nlevel = \"fs\"\npoll = \"30s\"\ncontact = \"hpc@example.org\"\n[jobs]\nmax_time = \"10m\"\n", "login")
	s.want(t, run+"--scheduler local -- true", 78, "no tasks run on this machine itself: site.tasks_here of the site file /etc/berth/site.toml:2",
		"hint: --scheduler slurm; questions: hpc@example.org")
	s.want(t, env+"berth exec --env here --image "+s.image+" -- true", 125, "site.tasks_here of the site file")
	s.want(t, run+"--backend local -- true", 78, "the level of a place is fs at least, and this one's is none: site.level of the site file")
	s.want(t, run+"--time 11m -- true", 78, "time = 11m, and one may have 10m: jobs.max_time of the site file")
	s.want(t, env+"berth config set scheduler local; berth config set terminal.backend local; berth run -- true", 78, "site.tasks_here of the site file")
	s.ok(t, env+"berth config unset scheduler; berth config unset terminal.backend")
	if a := s.want(t, run+"-- echo in a job", 0); a.out != "in a job\n" {
		t.Errorf("%+v", a)
	}
	shown := s.want(t, env+"berth doctor --site", 0).out
	for _, line := range []string{"here\tok\tsite\tfile\t/etc/berth/site.toml: ", "\tok\tsite\tsite.tasks_here = false\t", "\tok\tsite\tsite.level = fs\t", "\tskip\tsite\tsite.poll = 30s\t",
		"\tok\tsite\tjobs.max_time = 10m0s\t"} {
		if !strings.Contains(shown, line) {
			t.Errorf("no %q in\n%s", line, shown)
		}
	}
	if counted := s.want(t, env+"berth config rpc", 0).out; !strings.Contains(counted, "sbatch\t") || !strings.Contains(counted, "all\t") {
		t.Errorf("%s", counted)
	}

	// A node's own file, where the login node has none.
	s.root(t, "rm /etc/berth/site.toml", "login")
	write("[network]\nmode = \"none\"\n", "c1", "c2")
	a := s.want(t, run+"-- 'tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d \" \"'", 0)
	if a.out != "lo\n" {
		t.Errorf("a node whose file shuts the network off has %q", a.out)
	}
	write("[site]\nlevel = \"egress\"\n", "c1", "c2")
	s.want(t, run+"-- echo ran", 78, "the level of a place is egress at least, and this one's is fs: site.level of the site file /etc/berth/site.toml:2")

	// What others could have written is no file of root's.
	write("[site]\ntasks_here = true\n", "login")
	s.root(t, "chown alice /etc/berth/site.toml", "login")
	s.want(t, run+"-- true", 78, "the site file /etc/berth/site.toml cannot be trusted: it belongs to another user than root")
	s.root(t, "chown root /etc/berth/site.toml; chmod 600 /etc/berth/site.toml", "login")
	s.want(t, run+"-- true", 78, "the site file /etc/berth/site.toml cannot be read")
	s.ok(t, env+"berth ps --all")
	s.bare(t, "login", "squeue -h -u alice -o '%i %j %T'")
	s.quiet(t)
}
