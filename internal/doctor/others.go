package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	boxes "berth/apptainer/examine"
	"berth/backends/bwrap"
	"berth/backends/docker"
	"berth/backends/ssh"
	"berth/internal/images"
	"berth/internal/sys/run"
	"berth/internal/sys/siffile"
	"berth/jobs"
	"berth/jobs/finding"
)

// checkDocker asks the daemon what it is and what it holds.
func checkDocker(ctx context.Context, l *look) []Finding {
	a, err := (&docker.Backend{On: l.On}).About(ctx)
	if err != nil {
		if a.Program == "" {
			return one(Skip, "neither docker nor podman is on PATH", "")
		}
		if cause := explain(ctx, a.Program, err); ctx.Err() != nil {
			err = cause
		}
		return one(Fail, err.Error(), jobs.HintOf(err))
	}
	name := filepath.Base(a.Program)
	f := Finding{Status: OK, Why: name + " " + a.Version}
	switch {
	case a.Rootless:
		f.Why += ", rootless: root inside is you"
	case !a.Podman:
		f.Why += ", its daemon is root: whoever may use it has root's rights on this machine"
	}
	out := []Finding{with(f, "program", a.Program, "version", a.Version, "rootless", yes(a.Rootless))}
	if a.Memory && a.CPUs {
		out = append(out, Finding{Subject: "limits of " + name, Status: OK, Why: "it holds memory and CPUs"})
	} else {
		out = append(out, Finding{Subject: "limits of " + name, Status: Warn, Why: "it does not hold " + lacks(a) + ": " + a.Why,
			Do: "see docs.docker.com/engine/security/rootless for limits of rootless daemons"})
	}
	return append(out, finding.Flaws(runcFlaws, "runc of "+name, a.Runc, false)...)
}

// checkBwrap makes a place without an image, and leaves it.
func checkBwrap(ctx context.Context, l *look) []Finding {
	got := (&bwrap.Backend{On: l.On}).Check(ctx)
	switch got.Health {
	case jobs.Undetected:
		return one(Skip, "bubblewrap (bwrap) is not on PATH", "")
	case jobs.Unhealthy:
		return one(Warn, got.Reason, got.Hint) // it is used only where it is named
	}
	return []Finding{with(Finding{Status: OK, Why: "bubblewrap " + got.Version}, "version", got.Version)}
}

func lacks(a docker.About) string {
	switch {
	case !a.Memory && !a.CPUs:
		return "memory and CPUs"
	case !a.Memory:
		return "memory"
	}
	return "CPUs"
}

// checkSSH looks for the ssh program and an agent.
func checkSSH(ctx context.Context, l *look) []Finding {
	got := ssh.Backend{On: l.On}.Check(ctx)
	switch got.Health {
	case jobs.Undetected:
		return one(Skip, got.Reason, got.Hint)
	case jobs.Unhealthy:
		return one(Fail, got.Reason, got.Hint)
	}
	f := with(Finding{Status: OK, Why: or(got.Version, "ssh")}, "version", got.Version)
	agent := l.Getenv("SSH_AUTH_SOCK")
	switch {
	case l.OnNode(): // no login starts there
	case agent == "":
		f.Why += "; no agent: a key with a passphrase cannot be used without asking"
	case l.look("ssh-add") != "":
		_, err := run.Output(ctx, l.On, jobs.Cmd{Argv: []string{l.look("ssh-add"), "-l"}, Dir: "/"})
		var failed *run.Error
		switch {
		case err == nil:
			f.Why += "; an agent with keys"
		case errors.As(err, &failed) && failed.Exit.Code == 1:
			f.Why += "; an agent without a key"
		default:
			f.Status, f.Why, f.Do = Warn, f.Why+"; the agent of SSH_AUTH_SOCK does not answer",
				"unset SSH_AUTH_SOCK, or start an agent: eval $(ssh-agent); ssh-add"
		}
	}
	return []Finding{f}
}

// checkSSHHost reaches the host that is configured, without asking a person.
func checkSSHHost(ctx context.Context, l *look) []Finding {
	if l.SSH == nil {
		return nil
	}
	h, err := ssh.Backend{On: l.On, Join: true}.Host(*l.SSH) // no connection is left behind
	if err != nil {
		return one(Fail, err.Error(), jobs.HintOf(err))
	}
	f := Finding{Subject: "ssh host " + h.String()}
	out, err := run.Output(ctx, h, jobs.Cmd{Argv: []string{"uname", "-sm"}})
	switch {
	case err != nil && ctx.Err() != nil:
		f.Status, f.Why, f.Do = Fail, "it does not answer: "+causeOf(ctx).Error(), "try: ssh -v "+l.SSH.Host
	case err != nil:
		f.Status, f.Why, f.Do = Fail, err.Error(), jobs.HintOf(err)
	default:
		f.Status, f.Why = OK, "reached without asking, host key known: "+finding.LastLine(string(out))
	}
	return []Finding{f}
}

// checkGit looks for git, which tasks with a workspace need, at both ends.
func checkGit(ctx context.Context, l *look) []Finding {
	p := l.look("git")
	if p == "" {
		return one(Warn, "git is not on PATH: no task with a workspace can run here", "install git, or name its module in a profile")
	}
	out, err := l.ask(ctx, nil, p, "--version")
	v := strings.TrimPrefix(strings.TrimSpace(out), "git version ")
	n, ok := finding.Numbers(v)
	switch {
	case err != nil || !ok:
		return one(Warn, "git does not tell its version: "+or(out, "it failed"), "try: git --version")
	case finding.Less(n, [3]int{2, 30, 0}):
		return []Finding{with(Finding{Status: Warn, Why: "git " + v + " is older than what berth was tried with (2.39)",
			Do: "load a newer one"}, "version", v)}
	}
	return []Finding{with(Finding{Status: OK, Why: "git " + v}, "version", v)}
}

// checkImage looks for the image of the profile.
func checkImage(_ context.Context, l *look) []Finding {
	img := l.Profile.Image
	if img == "" || images.IsReference(img) { // that one is looked for at submit
		return nil
	}
	f, err := os.Open(img)
	if err != nil {
		return []Finding{{Status: Fail, Configured: true, Why: "the profile's image cannot be read: " + err.Error(),
			Do: "put it on a file system that all nodes see, or change image in the profile"}}
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || fi.IsDir() {
		return []Finding{{Status: Fail, Configured: true, Why: "the profile's image " + img + " is a directory: jobs take a SIF",
			Do: boxes.HintImage + img}}
	}
	if _, err := siffile.ReadHeader(f); err != nil {
		return []Finding{{Status: Fail, Configured: true, Why: "the profile's image " + img + " is no SIF",
			Do: boxes.HintImage + "docker-archive:... makes one"}}
	}
	return []Finding{with(Finding{Status: OK, Why: img + ", " + jobs.Bytes(fi.Size()).String()}, "image", img)}
}
