// Package examine looks at the Apptainer or SingularityCE of a machine and says what
// works, what does not, why, and what to do: the checks of "berth doctor" that know
// their words.
package examine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"berth/apptainer"
	"berth/jobs"
	"berth/jobs/finding"
)

// Machine is where the program is, and for whom it is asked.
type Machine struct {
	On     jobs.Starter
	Getenv func(name string) string
	// Look finds a program on PATH, or returns "".
	Look func(program string) string
	// Path is where a path of the machine is read.
	Path func(path string) string
	// Ask runs a program for a time that it bounds itself, and returns what it
	// prints; its error says in a few words why it failed.
	Ask func(ctx context.Context, env []string, argv ...string) (string, error)
	// Said puts the failure of a program into a few words.
	Said func(ctx context.Context, program string, err error) error
	// User is the name of who opens containers, Guest the path of berth-node.
	User  func() string
	Guest string
	// Modules are those of the module system that have the program, see [IsModule], the
	// best last.
	Modules func() []string
	// Temp makes a directory for something to be tried in.
	Temp func() (string, error)
	// TempKept makes one where layers are that stay; nil is none.
	TempKept func() (string, error)
	// Prefix begins the names of what a check makes.
	Prefix string
}

// Site is the program of a machine.
type Site struct {
	Machine
	find func() (box, error) // asked once
}

// New returns the program of a machine. It asks nothing yet; ctx bounds what all
// checks ask together.
func New(ctx context.Context, m Machine) *Site {
	s := &Site{Machine: m}
	s.find = sync.OnceValues(func() (box, error) { return s.ask(ctx) })
	return s
}

// IDs of the checks on which it depends whether the backend can be used. The last are
// those of its layers, by their driver.
const (
	IDProgram = "apptainer.program"
	IDConf    = "apptainer.conf"
	Layers    = "overlay."
)

// Check looks at one thing.
type Check struct {
	ID, Name string
	About    string // what it looks at and what its failure means
	// Run returns findings without an id, or none where the same is said elsewhere.
	Run func(ctx context.Context, s *Site) []finding.Finding
}

// Asked are the checks that ask the program, Tried those that open containers.
var (
	Asked = []Check{
		{IDProgram, "singularity", "apptainer or singularity is on PATH and runs; else the module that has it", checkProgram},
		{"apptainer.flaws", "singularity: version", "its version, against known flaws; " +
			"below 1.4.4 ext3 layers are not to be trusted", needs(checkFlaws)},
		{"apptainer.mode", "singularity: rights", "setuid root, or user namespaces: which layers are available follows from it", needs(checkRights)},
		{IDConf, "singularity: conf",
			"directives of apptainer.conf or singularity.conf with which berth does not work, or not wholly", needs(checkConf)},
	}
	Tried = []Check{
		{Layers + jobs.DriverKernel, "layer: kernel",
			"two containers over a layer of berth's own mount see the same after directories of the image were removed and moved",
			checkLayer(jobs.DriverKernel, "an overlay of the kernel, mounted by berth: containers start fastest",
				"containers use another layer; nothing is to be done")},
		{Layers + jobs.DriverFuse, "layer: fuse", "the same over a directory through fuse-overlayfs, the layer of jobs without a profile",
			checkLayer(jobs.DriverFuse, "a directory through fuse-overlayfs, which jobs use without a profile",
				`jobs need overlay = "kernel" or "ext3" in a profile, whichever works`)},
		{Layers + jobs.DriverExt3, "layer: ext3",
			"the same over an ext3 image, for layers of a size, on network file systems, and with a setuid Apptainer",
			checkLayer(jobs.DriverExt3, "a sparse ext3 image", "no layer of a bounded size is available, and none on a network file system")},
		{"apptainer.fakeroot", "fakeroot", "root inside: which of its ways, by trying", needs(checkFakeroot)},
		{"apptainer.network", "no network", "a container without a network, by trying", needs(checkNoNetwork)},
	}
	// Helpers is of the machine.
	Helpers = Check{"fuse.helpers", "FUSE helpers", "squashfuse_ll, fuse-overlayfs and fuse2fs, where Apptainer is not setuid", checkHelpers}
)

// What checks of the machine say to do, where the program depends on it.
const (
	HintInstall      = "install Apptainer or docker, or ask the site; without containment, with your own rights: --backend local"
	HintAppArmor     = "Apptainer's package brings a profile for itself; for the rest ask the site for kernel.apparmor_restrict_unprivileged_userns = 0"
	HintNoNamespaces = "containers need a setuid Apptainer then (layers: ext3), or docker; ask the site for user namespaces"
	NoMounter        = "no fusermount3, which Apptainer does not need"
	NoDirectories    = "a directory through fuse-overlayfs cannot be a layer"
	HintImage        = "apptainer build image.sif " // and what it is made of
)

// ProfileVersion is the key of a profile for the version that its jobs find.
const ProfileVersion = "apptainer"

// Works tells why containers do not work on a machine, by the findings of all checks;
// "" is that they do. The finding is the program's, or the one that is why.
func Works(all []finding.Finding) (f finding.Finding, bad string) {
	first := func(id string) finding.Finding {
		for _, f := range all {
			if f.ID == id {
				return f
			}
		}
		return finding.Finding{ID: id}
	}
	program := first(IDProgram)
	if program.Status != finding.OK && program.Status != finding.Warn {
		if program.Why == "" {
			return program, "it was not looked at"
		}
		return program, program.Why
	}
	for _, f := range all {
		if f.ID == IDConf && f.Status == finding.Fail {
			return f, f.Why
		}
	}
	var no []string
	for _, d := range []string{jobs.DriverKernel, jobs.DriverFuse, jobs.DriverExt3} {
		f := first(Layers + d)
		if f.Status == finding.OK {
			return program, ""
		}
		no = append(no, d+": "+f.Why)
	}
	return program, "no layer works: " + strings.Join(no, "; ")
}

// box is what the program has said of itself.
type box struct {
	path    string
	version string
	build   *apptainer.Build    // what it says about how it was built; nil where it does not
	conf    *apptainer.SiteConf // its configuration; nil where it cannot be read
	confErr error
	setuid  string // path of its setuid starter, or ""
}

// errNone is that there is none on PATH.
var errNone = errors.New("neither apptainer nor singularity is on PATH")

// ask asks the program what it is.
func (s *Site) ask(ctx context.Context) (box, error) {
	path, err := apptainer.FindProgram(s.Getenv("PATH"))
	if err != nil {
		return box{}, errNone
	}
	b := box{path: path}
	// It makes its directory in the home for any question, unless told another.
	conf, err := os.MkdirTemp(s.Getenv("TMPDIR"), s.Prefix+"*")
	if err != nil {
		return b, err
	}
	defer func() { _ = os.RemoveAll(conf) }()
	env := apptainer.Environ(s.Getenv, conf)
	out, err := s.Ask(ctx, env, path, "--version")
	if err != nil {
		return b, err
	}
	if b.version = apptainer.ParseVersion(out); b.version == "" {
		return b, errors.New(filepath.Base(path) + " --version printed no version: " + finding.LastLine(out))
	}
	if out, err = s.Ask(ctx, env, path, "buildcfg"); err != nil {
		b.confErr = err
		return b, nil // a wrapper of the site's may not know it
	}
	build := apptainer.ParseBuild(out)
	b.build, b.setuid = &build, build.SetuidStarter(s.Path)
	at := build.Conf
	if at != "" {
		at = s.Path(at)
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

// needs runs a check that is about the program, when there is one that runs; else the
// check of the program has said why.
func needs(check func(ctx context.Context, s *Site, b box) []finding.Finding) func(context.Context, *Site) []finding.Finding {
	return func(ctx context.Context, s *Site) []finding.Finding {
		b, err := s.find()
		if err != nil {
			return nil
		}
		return check(ctx, s, b)
	}
}
