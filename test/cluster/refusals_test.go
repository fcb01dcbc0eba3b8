//go:build cluster

package cluster

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
)

// rules are those of sites, for the jobs of the case that each is named after.
const rules = `
local function of(job, case)
	return job.work_dir ~= nil and string.find(job.work_dir, "/TestRefusals-at_once-" .. case .. ".", 1, true) ~= nil
end
function slurm_job_submit(job, partitions, uid)
	local no = (of(job, "requeue") and job.requeue == 1 and "--requeue is not allowed here")
		or (of(job, "dependency") and job.dependency ~= nil and "dependencies are switched off here")
		or (of(job, "account") and job.account == nil and "you must give --account")
	if no then
		slurm.log_user(no)
		return slurm.ERROR
	end
	return slurm.SUCCESS
end
function slurm_job_modify(job, old, partitions, uid)
	return slurm.SUCCESS
end
return slurm.SUCCESS
`

// banners is an sbatch that talks on both streams and always ends well.
const banners = `#!/bin/sh
for i in 1 2 3 4 5; do echo "NOTE $i"; echo "NOTE $i" >&2; done
/usr/bin/sbatch "$@"
for i in 6 7 8 9; do echo "NOTE $i"; echo "NOTE $i" >&2; done
exit 0
`

// zzSite defines the module function in a file that berth does not know.
const zzSite = `module() {
	case "$*" in
	"load apptainer/1.4.5") PATH=/opt/site-apptainer/bin:$PATH; export PATH ;;
	*avail*) echo apptainer/1.4.5 >&2 ;;
	*) echo "ERROR: unable to locate a modulefile for '$2'" >&2; return 1 ;;
	esac
}
export -f module
`

// said is a command of alice's, how it must end, and what she must read.
type said struct {
	text  string
	code  int
	words []string
}

// refused is a site that does not do what berth asks it.
type refused struct {
	name    string
	site    func(t *testing.T, s site, d string) // what its administrators do
	profile string                               // site.toml
	first   []said
	then    func(t *testing.T, s site, env, d string)
}

// TestRefusals: on a site with a rule of its own the user reads what failed, where,
// and what helps, and with that the job runs. A node without room is in
// TestFullScratch; a requeue that slurmctld forgets takes its job's whole time, and is
// TestRequeueForgotten of jobs.
func TestRefusals(t *testing.T) {
	s := standard
	s.need(t)
	t.Cleanup(func() { s.sh(t, "scancel -u alice") })
	const conf = "sed -i /^JobSubmitPlugins/d /etc/slurm/slurm.conf; "
	t.Cleanup(func() { s.root(t, conf+"rm -f /etc/slurm/job_submit.lua; scontrol reconfigure", "ctl") })
	s.root(t, conf+"echo JobSubmitPlugins=lua >>/etc/slurm/slurm.conf; cat >/etc/slurm/job_submit.lua <<'EOF'"+rules+"EOF\nscontrol reconfigure", "ctl")
	waitFor(t, patience, func() bool {
		_, err := s.healthy(t)
		return err == nil && s.sh(t, "scontrol show config | grep -q '^JobSubmitPlugins *= lua'").code == 0
	})
	run := "berth run --image " + s.image + " --memory 300MiB "
	all := []string{"login", "c1", "c2"}

	t.Run("at once", func(t *testing.T) {
		for _, c := range []refused{
			{name: "requeue", first: []said{
				{run + "-- true", 2, []string{"refused the job: --requeue is not allowed here", `hint: .*forbid = \["requeue"\].*berth doctor --on-node --write-profile`}},
				{"berth doctor --on-node --write-profile site", 0, []string{"Slurm takes it without --requeue", "use it with --profile site"}},
				{"cat $XDG_CONFIG_HOME/berth/profiles/site.toml >&2", 0, []string{`(?m)^forbid = \["requeue"\]$`}},
			}},
			{name: "dependency", first: []said{
				{run + "-- true", 2, []string{"dependencies are switched off here", "hint: a rule of the site's refuses it: berth doctor --on-node --write-profile"}},
				{"berth doctor --on-node --write-profile site", 0, []string{"Slurm takes it without --dependency"}},
				{"cat $XDG_CONFIG_HOME/berth/profiles/site.toml >&2", 0, []string{`(?m)^forbid = \["dependency"\]$`}},
			}},
			{name: "account", first: []said{
				{run + "-- true", 2, []string{"refused the job: you must give --account", `hint: your accounts here are: lab, side; name one below \[slurm\] in the profile: account = `}},
				{"berth doctor --on-node --write-profile site", 2, []string{"no profile was written: the node could not be looked at", "hint: your accounts here are: lab, side"}},
				{`mkdir -p $XDG_CONFIG_HOME/berth/profiles; printf '[slurm]\naccount = "lab"\n' >$XDG_CONFIG_HOME/berth/profiles/site.toml`, 0, nil},
			}},
			{name: "banners", site: func(t *testing.T, s site, d string) {
				s.ok(t, "mkdir "+d+"/bin; cat >"+d+"/bin/sbatch <<'EOF'\n"+banners+"EOF\nchmod 755 "+d+"/bin/sbatch")
			}, profile: "\n", first: []said{
				{run + "--partition nope -- true", 2, []string{"refused the job: invalid partition specified: nope", "hint: the partitions here are: main, urgent"}},
				// Slurm keeps a record of it as FAILED (BadConstraints), which is no attempt.
				{"berth run --image " + s.image + " --memory 900GiB -- true", 2, []string{"refused the job: Memory specification can not be satisfied", "hint: no node offers this: --mem=921600M; see what there is with: sinfo"}},
				{"berth ps --all | grep . >&2", 1, nil},
			}},
			{name: "few", site: func(t *testing.T, s site, _ string) {
				few := func(n int) {
					s.root(t, fmt.Sprintf("sacctmgr -iQ modify user alice account=side set MaxSubmitJobs=%d", n), "ctl")
				}
				few(3)
				t.Cleanup(func() { few(-1) })
			}, profile: "[slurm]\naccount = \"side\"\n", first: []said{
				{"for i in 1 2; do berth submit --profile site --image " + s.image + " --memory 300MiB -- sleep 316; done", 0, nil},
				{run + "--profile site -- true", 75, []string{"Slurm does not take another job now: AssocMaxSubmitJobLimit", "hint: .*squeue --me.*a second one waits in Slurm.*--retry off needs no place"}},
				{"berth ps >&2", 0, []string{"NOT FOLLOWED: see berth status"}},
				{"berth cancel $(berth ps | cut -f 1); berth wait $(berth ps --all | cut -f 1)", 130, nil},
				{"berth wait $(for i in 1 2 3; do berth submit --retry off --profile site --image " + s.image + " --memory 300MiB -- true; done)", 0, nil},
			}},
			{name: "noexec", site: func(t *testing.T, s site, d string) {
				t.Cleanup(func() { s.root(t, "cd /; while mountpoint -q "+d+"/state; do umount -l "+d+"/state; done", all...) })
				s.ok(t, "mkdir -m 700 "+d+"/state")
				s.root(t, "mount --bind "+d+"/state "+d+"/state && mount -o remount,bind,noexec "+d+"/state", all...)
			}, first: []said{
				{run + "-- true", 78, []string{"error: programs cannot be run from .*/state/bin", "hint: set BERTH_HOME to a private directory without noexec"}},
				{"[ -z \"$(berth ps --all)\" ]", 0, nil},
			}, then: func(t *testing.T, s site, env, d string) {
				// Where this machine may run them and the nodes may not, the node says it.
				s.root(t, "umount "+d+"/state", "login")
				s.want(t, env+run+"--retry on -- true", 78, "cannot be run from "+d+"/state on c[12]", "hint: set BERTH_HOME to a private directory without noexec")
				if got := s.ok(t, env+"berth explain $(berth ps --all | cut -f 1) | grep -c ^attempt"); got != "1" {
					t.Errorf("%s attempts", got)
				}
				s.want(t, env+"berth exec --env noexec --scheduler slurm --image "+s.image+" -- true", 125, "Permission denied", "hint: set BERTH_HOME to a private directory without noexec")
				s.want(t, env+"berth doctor --on-node", 5, "ended without an answer.*Permission denied", "hint: set BERTH_HOME to a private directory without noexec")
				s.root(t, "umount "+d+"/state", "c1", "c2")
			}, profile: "\n"},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.play(t, s, run)
			})
		}
	})

	for _, c := range []refused{
		{name: "module", site: func(t *testing.T, s site, _ string) {
			s.disturb(t)
			const hidden = "/opt/site-apptainer"
			t.Cleanup(func() {
				s.root(t, "[ ! -e "+hidden+"/bin/apptainer ] || mv "+hidden+"/bin/apptainer /usr/bin/apptainer; rm -rf "+hidden+" /etc/profile.d/zz-site.sh", all...)
			})
			s.root(t, "mkdir -p "+hidden+"/bin "+hidden+"/etc && cd "+hidden+" && ln -s /etc/apptainer etc/apptainer && ln -s /usr/libexec /usr/lib /var . && "+
				"mv /usr/bin/apptainer bin/apptainer && cat >/etc/profile.d/zz-site.sh <<'EOF'\n"+zzSite+"EOF\n", all...)
		}, first: []said{
			{run + "-- true", 78, []string{"neither apptainer nor singularity is on the PATH of c", `hint: .*modules = \["apptainer"\]`}},
			{"berth doctor --on-node --write-profile site >$BERTH_HOME/../said; cat $BERTH_HOME/../said >&2", 0, []string{`(?m)^node .*\tfail\t.*the module apptainer/1.4.5 has it\tmodules = \["apptainer/1.4.5"\] in a profile`}},
			{"cd $XDG_CONFIG_HOME/berth/profiles; sed s/1.4.5/9.9/ site.toml >bad.toml; " + run + "--profile bad -- true", 78, []string{
				"could not prepare the node: on c[12] this module does not load: apptainer/9.9", "hint: see .*/scheduler.log; change modules or module_init in the profile"}},
		}},
		{name: "drained", site: func(t *testing.T, s site, _ string) {
			t.Cleanup(func() { s.root(t, "for n in c1 c2; do scontrol update nodename=$n state=resume || true; done", "ctl") })
			s.root(t, "scontrol update nodename=c[1-2] state=drain reason=maintenance", "ctl")
		}, first: []said{
			{"(" + run + "-- true >$BERTH_HOME.out 2>&1; echo code $? >>$BERTH_HOME.out) >/dev/null 2>&1 &", 0, nil},
		}, profile: "\n", then: func(t *testing.T, s site, env, d string) {
			why := "nodes that it needs are down, drained or reserved"
			waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "cat "+d+"/state.out").out, "waits: "+why) })
			a := s.want(t, env+"berth explain $(berth ps | cut -f 1)", 0)
			if !strings.Contains(a.out, "it waits: "+why) || !regexp.MustCompile(`hint\t.*sinfo -R`).MatchString(a.out) {
				t.Errorf("%s", a.out)
			}
			s.root(t, "scontrol update nodename=c[1-2] state=resume", "ctl")
			waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "cat "+d+"/state.out").out, "code 0") })
		}},
	} {
		t.Run(c.name, func(t *testing.T) { c.play(t, s, run) })
	}
	s.bare(t, "login", "squeue -h -u alice -o '%i %j %T'")
	s.quiet(t)
}

// play has alice meet the rule, and run a job by what she has read.
func (c refused) play(t *testing.T, s site, run string) {
	d := s.dir(t)
	env := "export BERTH_HOME=" + d + "/state XDG_CONFIG_HOME=" + d + "/config PATH=" + d + "/bin:$PATH; "
	if c.profile != "" {
		s.ok(t, env+"mkdir -p "+d+"/config/berth/profiles; cat >"+d+"/config/berth/profiles/site.toml <<'EOF'\n"+c.profile+"EOF\n")
	}
	if c.site != nil {
		c.site(t, s, d)
	}
	for _, x := range c.first {
		s.want(t, env+x.text, x.code, x.words...)
	}
	if c.then != nil {
		c.then(t, s, env, d)
	}
	if a := s.want(t, env+run+"--profile site -- echo works", 0); a.out != "works\n" {
		t.Errorf("%s: %q", path.Base(d), a.out)
	}
}

// root runs a text as root on hosts.
func (s site) root(t *testing.T, text string, hosts ...string) {
	t.Helper()
	for _, h := range hosts {
		if a := s.on(t, h, "root", "bash", "-ec", text); a.code != 0 {
			t.Fatalf("%s on %s: %+v", text, h, a)
		}
	}
}
