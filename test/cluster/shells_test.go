//go:build cluster

package cluster

import (
	"net"
	"slices"
	"strings"
	"testing"
)

// TestLoginShells: users whose login shell is no POSIX shell run jobs and environments,
// there and from another machine; one whose start-up file ends every shell that runs a
// command is told so.
func TestLoginShells(t *testing.T) {
	s := standard
	s.need(t)
	ip := s.on(t, "login", "root", "hostname", "-i")
	k := newLink(t, net.JoinHostPort(strings.Fields(ip.out)[0], "22"))
	c := newClient(t, s, k)
	as := func(user string) []string {
		c.login[1] = user + c.login[1][strings.Index(c.login[1], "@"):]
		return slices.Clone(c.login)
	}
	for _, u := range [][2]string{{"carol", "tcsh"}, {"dave", "fish"}} {
		t.Run(u[1], func(t *testing.T) {
			c.t = t
			user := u[0]
			there := func(line string) answer { // typed by the user on the login node
				return s.on(t, "login", user, "env", "SHELL="+u[1], "PATH=/mnt/share/bin:/usr/bin:/bin", u[1], "-c", line)
			}
			t.Cleanup(func() {
				there("berth env rm --force shells")
				s.on(t, "login", user, "sh", "-c", "rm -rf ~/.local/state/berth")
			})
			if a := there("berth run --image " + s.image + " -- 'x=1; echo $x $HOME $SHELL'"); a.code != 0 || !strings.HasPrefix(a.out, "1 /home/"+user) {
				t.Errorf("%+v", a)
			}
			for _, line := range []string{"cd /tmp; v=w", "echo $v in $PWD"} {
				a := there("berth exec --env shells --backend singularity --image " + s.image + " -- '" + line + "'")
				if a.code != 0 || strings.HasPrefix(line, "echo") && a.out != "w in /tmp\n" {
					t.Errorf("%s: %+v", line, a)
				}
			}
			// By ssh that shell reads every line of berth's.
			login := as(user)
			id := c.ok("submit", "--image", s.image, "--", `echo "a  b" '$c' \! ; exit 3`)
			if a := c.run("wait", id); a.code != 1 {
				t.Errorf("%+v", a)
			}
			if a := c.run("logs", id); a.out != "a  b $c !\n" {
				t.Errorf("%+v", a)
			}
			_ = c.ok("rm", "--force", id)
			exec := append([]string{"exec", "--env", "ssh-" + user, "--backend", "ssh", "--host", login[1]}, login[2:]...)
			t.Cleanup(func() { c.run("env", "rm", "--force", "ssh-"+user) })
			for range 2 {
				if a := c.run(append(exec, "--", `echo "$USER" 'it''s'`)...); a.code != 0 || a.out != user+" its\n" {
					t.Errorf("%+v", a)
				}
			}
		})
	}
	t.Run("bashrc", func(t *testing.T) {
		c.t = t
		as("erin")
		if a := c.run("submit", "--image", s.image, "--", "true"); a.code != 78 || !strings.Contains(a.err, "~/.bashrc") {
			t.Errorf("%+v", a)
		}
		// No job reads it.
		a := s.on(t, "login", "root", "setpriv", "--reuid", "erin", "--regid", "erin", "--init-groups", "env", "HOME=/home/erin", "USER=erin",
			"PATH=/mnt/share/bin:/usr/bin:/bin", "bash", "-c", "cd; berth run --image "+s.image+" -- echo works; code=$?; rm -rf ~/.local/state/berth; exit $code")
		if a.code != 0 || a.out != "works\n" {
			t.Errorf("%+v", a)
		}
	})
}

// TestCallersVariables: what Slurm has put into the environment of whoever calls berth,
// in a job of several parts too, and a configuration that the nodes have elsewhere, do
// not change the job.
func TestCallersVariables(t *testing.T) {
	each(t, []site{standard}, func(t *testing.T, s site) {
		const odd = "cp /etc/slurm/slurm.conf ~/own.conf; export SLURM_CONF=$HOME/own.conf SLURM_HET_SIZE=2 SLURM_HET_JOB_ID=7 SLURM_JOB_ID_HET_GROUP_0=7 " +
			"SLURM_JOB_ID=7 SLURM_NTASKS=9 SLURM_MEM_PER_CPU=1 SBATCH_PARTITION=nosuch SBATCH_ARRAY_INX=1-9 SLURM_RESTART_COUNT=3; "
		t.Cleanup(func() { s.sh(t, "berth env rm --force callers; rm -f ~/own.conf") })
		a := s.want(t, odd+"berth run --image "+s.image+" --memory 300MiB -- 'env | grep -c ^SLURM_HET; echo $SLURM_NTASKS $SLURM_RESTART_COUNT'", 0)
		if a.out != "0\n1\n" && a.out != "0\n1 0\n" && a.out != "0\n\n" {
			t.Errorf("%q", a.out)
		}
		a = s.want(t, odd+"berth exec --env callers --scheduler slurm --image "+s.image+" -- 'env | grep -c ^SLURM_HET'", 1)
		if a.out != "0\n" {
			t.Errorf("%q", a.out)
		}
		s.ok(t, odd+"berth env rm --force callers")
	})
}
