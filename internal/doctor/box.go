package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"berth/apptainer"
	"berth/jobs"
	"berth/jobs/finding"
)

// box is the container program of this machine.
type box struct {
	path    string
	version string
	build   *apptainer.Build    // what it says about how it was built; nil where it does not
	conf    *apptainer.SiteConf // its configuration; nil where it cannot be read
	confErr error
	setuid  string // path of its setuid starter, or ""
}

// errNoBox is that there is none on PATH.
var errNoBox = errors.New("neither apptainer nor singularity is on PATH")

// findBox asks the program what it is.
func (l *look) findBox(ctx context.Context) (box, error) {
	path, err := apptainer.FindProgram(l.Getenv("PATH"))
	if err != nil {
		return box{}, errNoBox
	}
	b := box{path: path}
	// It makes its directory in the home for any question, unless told another.
	conf, err := os.MkdirTemp(l.Getenv("TMPDIR"), tempPrefix+"*")
	if err != nil {
		return b, err
	}
	defer func() { _ = os.RemoveAll(conf) }()
	env := apptainer.Environ(l.Getenv, conf)
	out, err := l.ask(ctx, env, path, "--version")
	if err != nil {
		return b, err
	}
	if b.version = apptainer.ParseVersion(out); b.version == "" {
		return b, errors.New(filepath.Base(path) + " --version printed no version: " + finding.LastLine(out))
	}
	if out, err = l.ask(ctx, env, path, "buildcfg"); err != nil {
		b.confErr = err
		return b, nil // a wrapper of the site's may not know it
	}
	build := apptainer.ParseBuild(out)
	b.build, b.setuid = &build, build.SetuidStarter(l.path)
	at := build.Conf
	if at != "" {
		at = l.path(at)
	}
	if b.conf, b.confErr = apptainer.ReadSiteConf(at); b.conf != nil {
		b.conf.Path = build.Conf
	}
	return b, nil
}

// name is how its version is talked about.
func (b box) name() string { return strings.TrimSuffix(filepath.Base(b.path), ".sh") }

// isSetuid tells whether containers are made by a starter with root's rights.
func (b box) isSetuid() bool { return b.setuid != "" && b.conf.SetuidOff() == "" }

// needsBox runs a check that is about the container program, when there is one
// that runs; else the check of the program has said why.
func needsBox(check func(ctx context.Context, l *look, b box) []Finding) func(context.Context, *look) []Finding {
	return func(ctx context.Context, l *look) []Finding {
		b, err := l.box()
		if err != nil {
			return nil
		}
		return check(ctx, l, b)
	}
}

// checkBox looks for the container program.
func checkBox(ctx context.Context, l *look) []Finding {
	b, err := l.box()
	if errors.Is(err, errNoBox) {
		f := Finding{Status: Skip, Why: errNoBox.Error(), Do: "ask the site for Apptainer, or install it (Debian, Fedora: from their archives or apptainer.org)"}
		if m, merr := l.mods(); merr == nil && len(m.boxes) > 0 {
			best := m.boxes[len(m.boxes)-1]
			f.Why += "; the module " + best + " has it"
			f.Do = `modules = ["` + best + `"] in a profile; for environments: module load ` + best
		}
		return []Finding{f}
	}
	if err != nil {
		return one(Fail, b.path+" does not run: "+err.Error(), "try: "+b.path+" --version")
	}
	return []Finding{with(Finding{Status: OK, Why: b.name() + " " + b.version + " (" + b.path + ")"}, "program", b.path, "version", b.version)}
}

// checkBoxFlaws warns of what the version is known for.
func checkBoxFlaws(_ context.Context, _ *look, b box) []Finding {
	if n, ok := finding.Numbers(b.version); ok && n[0] >= 2 {
		return one(OK, b.name()+" "+b.version+": berth knows no list of flaws for SingularityCE", "")
	}
	if found := finding.Flaws(boxFlaws, "", b.version, b.isSetuid()); found != nil {
		return found
	}
	return one(OK, b.version+" has no flaw that berth knows of", "")
}

// checkBoxMode tells by whose rights containers are made.
func checkBoxMode(_ context.Context, _ *look, b box) []Finding {
	switch {
	case b.build == nil:
		return one(Skip, "not known: "+b.name()+" does not tell how it was built", "")
	case b.isSetuid():
		return []Finding{with(Finding{Status: OK,
			Why: b.setuid + " is setuid root: images are mounted by the kernel, directories as writable layers are refused to users"}, "setuid", "yes")}
	case b.setuid != "":
		return []Finding{with(Finding{Status: OK, Why: "setuid, which is turned off (" + b.conf.SetuidOff() + "): containers are made in user namespaces",
			Do: apptainer.HintSetuidOff}, "setuid", "no")}
	}
	return []Finding{with(Finding{Status: OK, Why: "not setuid: containers are made in user namespaces, images mounted through FUSE"}, "setuid", "no")}
}

// checkBoxConf looks for what a site can set that berth does not work with.
func checkBoxConf(_ context.Context, _ *look, b box) []Finding {
	if b.conf == nil {
		return one(Skip, "its configuration cannot be read: "+b.confErr.Error(), "")
	}
	var out []Finding
	for _, r := range b.conf.Remarks(b.setuid != "") {
		f := Finding{Status: Warn, Why: r.Line + ": " + r.Why, Do: r.Hint}
		if r.Fatal {
			f.Status = Fail
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		return one(OK, "nothing in "+b.conf.Path+" is against berth", "")
	}
	return out
}

// trial has a scratch directory of its own for one way to be tried.
func (l *look) trial(ctx context.Context, b box, try func(apptainer.Trial) error) (err error) {
	base, err := scratchBase(l.Where)
	if err != nil && l.submits() { // the profile's is of the nodes
		w := l.Where
		w.Profile.Scratch = ""
		base, err = scratchBase(w)
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(base, tempPrefix+"*")
	if err != nil {
		return err
	}
	t := apptainer.Trial{On: l.On, Program: b.path, Guest: l.Program, Scratch: dir, User: l.user()}
	defer func() {
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
		defer cancel()
		if rerr := t.Remove(rctx); err == nil {
			err = rerr
		}
	}()
	return explain(ctx, b.path, try(t))
}

// tempPrefix begins the names of what a check makes.
const tempPrefix = "berth-doctor-"

// checkLayer tries an overlay driver; good and bad say what follows from it.
func checkLayer(driver, good, bad string) func(context.Context, *look) []Finding {
	return needsBox(func(ctx context.Context, l *look, b box) []Finding {
		err := l.trial(ctx, b, func(t apptainer.Trial) error { return t.Layer(ctx, driver, false) })
		if err != nil {
			return []Finding{with(Finding{Status: Warn, Why: err.Error(), Do: bad}, "works", "no")}
		}
		return []Finding{with(Finding{Status: OK, Why: "tried: " + good}, "works", "yes")}
	})
}

// checkFakeroot tries root inside, and says which of its ways that is.
func checkFakeroot(ctx context.Context, l *look, b box) []Finding {
	note := strings.TrimPrefix(apptainer.FakerootNote(l.user()), "fakeroot: ")
	if err := l.trial(ctx, b, func(t apptainer.Trial) error { return t.Layer(ctx, jobs.DriverFuse, true) }); err != nil {
		return []Finding{with(Finding{Status: Warn, Why: "--fakeroot does not work: " + err.Error(),
			Do: "needed only by environments that ask for it; ids of your own in /etc/subuid and /etc/subgid: ask the site"}, "works", "no")}
	}
	return []Finding{with(Finding{Status: OK, Why: note}, "works", "yes")}
}

// checkNoNetwork tries a container without a network.
func checkNoNetwork(ctx context.Context, l *look, b box) []Finding {
	if err := l.trial(ctx, b, func(t apptainer.Trial) error { return t.NoNetwork(ctx) }); err != nil {
		return []Finding{with(Finding{Status: Warn, Why: "network isolation is not available: " + err.Error(),
			Do: "needed only by environments that ask for it"}, "works", "no")}
	}
	return []Finding{with(Finding{Status: OK, Why: "tried: a container without a network (--network none)"}, "works", "yes")}
}
