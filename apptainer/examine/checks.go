package examine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/apptainer"
	"berth/jobs"
	"berth/jobs/finding"
)

// graceTime is for a check to clean up after its time.
const graceTime = 3 * time.Second

// found returns one finding with its data, keys and values in turn.
func found(status finding.Status, why, do string, data ...string) []finding.Finding {
	return []finding.Finding{finding.With(finding.Finding{Status: status, Why: why, Do: do}, data...)}
}

// checkProgram looks for the container program.
func checkProgram(ctx context.Context, s *Site) []finding.Finding {
	b, err := s.find()
	if errors.Is(err, errNone) {
		f := finding.Finding{Status: finding.Skip, Why: errNone.Error(),
			Do: "ask the site for Apptainer, or install it (Debian, Fedora: from their archives or apptainer.org)"}
		if m := s.Modules(); len(m) > 0 {
			best := m[len(m)-1]
			f.Why += "; the module " + best + " has it"
			f.Do = `modules = ["` + best + `"] in a profile; for environments: module load ` + best
		}
		return []finding.Finding{f}
	}
	if err != nil {
		return finding.One(finding.Fail, b.path+" does not run: "+err.Error(), "try: "+b.path+" --version")
	}
	return found(finding.OK, b.name()+" "+b.version+" ("+b.path+")", "", "program", b.path, "version", b.version)
}

// checkFlaws warns of what the version is known for.
func checkFlaws(_ context.Context, _ *Site, b box) []finding.Finding {
	if n, ok := finding.Numbers(b.version); ok && n[0] >= 2 {
		return finding.One(finding.OK, b.name()+" "+b.version+": berth knows no list of flaws for SingularityCE", "")
	}
	if found := finding.Flaws(flaws, "", b.version, b.isSetuid()); found != nil {
		return found
	}
	return finding.One(finding.OK, b.version+" has no flaw that berth knows of", "")
}

// checkRights tells by whose rights containers are made.
func checkRights(_ context.Context, _ *Site, b box) []finding.Finding {
	switch {
	case b.build == nil:
		return finding.One(finding.Skip, "not known: "+b.name()+" does not tell how it was built", "")
	case b.isSetuid():
		return found(finding.OK,
			b.setuid+" is setuid root: images are mounted by the kernel, directories as writable layers are refused to users", "", "setuid", "yes")
	case b.setuid != "":
		return found(finding.OK,
			"setuid, which is turned off ("+b.conf.SetuidOff()+"): containers are made in user namespaces", apptainer.HintSetuidOff, "setuid", "no")
	}
	return found(finding.OK, "not setuid: containers are made in user namespaces, images mounted through FUSE", "", "setuid", "no")
}

// checkConf looks for what a site can set that berth does not work with.
func checkConf(_ context.Context, _ *Site, b box) []finding.Finding {
	if b.conf == nil {
		return finding.One(finding.Skip, "its configuration cannot be read: "+b.confErr.Error(), "")
	}
	var out []finding.Finding
	for _, r := range b.conf.Remarks(b.setuid != "") {
		f := finding.Finding{Status: finding.Warn, Why: r.Line + ": " + r.Why, Do: r.Hint}
		if r.Fatal {
			f.Status = finding.Fail
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		return finding.One(finding.OK, "nothing in "+b.conf.Path+" is against berth", "")
	}
	return out
}

// checkLayer tries an overlay driver; good and bad say what follows from it.
func checkLayer(driver, good, bad string) func(context.Context, *Site) []finding.Finding {
	return needs(func(ctx context.Context, s *Site, b box) []finding.Finding {
		try := func(t apptainer.Trial) error { return t.Layer(ctx, driver, false) }
		err := s.trial(ctx, b, try)
		if err != nil && driver == jobs.DriverKernel && s.TempKept != nil {
			// Its directories may be right on one file system and not on another.
			if kerr := s.trialIn(ctx, b, s.TempKept, try); kerr == nil {
				return found(finding.Warn, "not in scratch ("+err.Error()+"); tried in the state directory, where it works: "+
					"layers that stay, of environments and of names",
					"jobs use another layer in scratch; nothing is to be done", "works", "no", "kept", "yes")
			}
		}
		if err != nil {
			return found(finding.Warn, err.Error(), bad, "works", "no")
		}
		return found(finding.OK, "tried: "+good, "", "works", "yes")
	})
}

// checkFakeroot tries root inside, and says which of its ways that is.
func checkFakeroot(ctx context.Context, s *Site, b box) []finding.Finding {
	note := strings.TrimPrefix(apptainer.FakerootNote(s.User()), "fakeroot: ")
	if err := s.trial(ctx, b, func(t apptainer.Trial) error { return t.Layer(ctx, jobs.DriverFuse, true) }); err != nil {
		return found(finding.Warn, "--fakeroot does not work: "+err.Error(),
			"needed only by environments that ask for it; ids of your own in /etc/subuid and /etc/subgid: ask the site", "works", "no")
	}
	return found(finding.OK, note, "", "works", "yes")
}

// checkNoNetwork tries a container without a network.
func checkNoNetwork(ctx context.Context, s *Site, b box) []finding.Finding {
	if err := s.trial(ctx, b, func(t apptainer.Trial) error { return t.NoNetwork(ctx) }); err != nil {
		return found(finding.Warn, "network isolation is not available: "+err.Error(), "needed only by environments that ask for it", "works", "no")
	}
	return found(finding.OK, "tried: a container without a network (--network none)", "", "works", "yes")
}

// trial has a scratch directory of its own for one way to be tried.
func (s *Site) trial(ctx context.Context, b box, try func(apptainer.Trial) error) error {
	return s.trialIn(ctx, b, s.Temp, try)
}

func (s *Site) trialIn(ctx context.Context, b box, temp func() (string, error), try func(apptainer.Trial) error) (err error) {
	dir, err := temp()
	if err != nil {
		return err
	}
	t := apptainer.Trial{On: s.On, Program: b.path, Guest: s.Guest, Scratch: dir, User: s.User()}
	defer func() {
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
		defer cancel()
		if rerr := t.Remove(rctx); err == nil {
			err = rerr
		}
	}()
	return s.Said(ctx, b.path, try(t))
}

// checkHelpers looks for the programs that an Apptainer which is not setuid mounts by.
func checkHelpers(_ context.Context, s *Site) []finding.Finding {
	b, err := s.find()
	if err != nil || b.isSetuid() {
		return nil
	}
	own := ""
	if b.build != nil && filepath.IsAbs(b.build.Libexec) {
		own = filepath.Join(b.build.Libexec, "apptainer", "bin")
	}
	have := func(name string) bool {
		if own != "" {
			if fi, err := os.Stat(s.Path(filepath.Join(own, name))); err == nil && fi.Mode()&0o111 != 0 {
				return true
			}
		}
		return s.Look(name) != ""
	}
	var here, missing []string
	for _, h := range [][2]string{
		{"squashfuse_ll", "images are mounted slowly, or unpacked for each start"},
		{"fuse-overlayfs", "a directory cannot be a layer over an image"},
		{"fuse2fs", "an ext3 image cannot be a layer"},
	} {
		if have(h[0]) {
			here = append(here, h[0])
		} else {
			missing = append(missing, h[0]+" ("+h[1]+")")
		}
	}
	if len(missing) > 0 {
		return finding.One(finding.Warn, "missing: "+strings.Join(missing, ", "),
			"install them (Debian: squashfuse, fuse-overlayfs, fuse2fs), or ask the site")
	}
	return finding.One(finding.OK, strings.Join(here, ", "), "")
}
