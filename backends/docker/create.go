package docker

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/internal/sys/private"
	"berth/jobs"
)

// maker makes the container of an environment.
type maker struct {
	p    *program
	s    *jobs.EnvSpec
	d    jobs.DockerSpec
	at   jobs.OpenPlace
	home *jobs.Mount // a HOME that persists, for a user inside who owns nothing there
	open *jobs.Opening
	tmp  []string // where extra arguments mount a tmpfs
}

func (m *maker) guestDir() string { return filepath.Join(m.at.Dir, "guest") }

// guest is the program in it, which a guest holds a lock on.
func (m *maker) guest() string { return filepath.Join(m.guestDir(), filepath.Base(guestPath)) }

// check refuses what is not available or would break the containment, before
// the daemon is asked anything.
func (m *maker) check() error {
	if err := checkImage(m.s.Image); err != nil {
		return err
	}
	if m.s.Fakeroot {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "fakeroot is not available on the backend docker", Hint: "root is root inside there already"}
	}
	for _, mnt := range m.s.Mounts {
		if _, err := mnt.Word(); err != nil {
			return err
		}
		if err := checkMount(mnt); err != nil {
			return err
		}
		if exposes(mnt.Source, os.Getenv) {
			return socketError(mnt.Source)
		}
	}
	for _, word := range m.d.Volumes {
		v, err := parseVolume(word)
		if err != nil {
			return err
		}
		if path.IsAbs(v.source) && exposes(v.source, os.Getenv) {
			return socketError(v.source)
		}
	}
	var err error
	m.tmp, err = checkExtra(m.d.ExtraArgs, m.s.Reaches().Mode)
	return err
}

// settleHome gives a user other than the image's a HOME. Without one of the
// environment's own, what they leave in HOME would be in the bounded memory of
// /tmp and end with the container.
func (m *maker) settleHome() error {
	id, _, _ := strings.Cut(m.d.User, ":")
	switch id {
	case "", "0", "root":
		return nil
	case strconv.Itoa(os.Getuid()):
	default:
		if _, err := strconv.Atoi(id); err == nil {
			m.open.Notes = append(m.open.Notes,
				"the user "+m.d.User+" may have no HOME in the image; it is /tmp/home-"+id+" then, and does not persist")
		}
		return nil
	}
	if m.home = homeOf(m.s, m.at.Dir); m.home == nil {
		return nil
	}
	m.open.Home = m.home.Destination
	return makeHome(m.home)
}

// covers hide private places of this machine that stand below binds and
// volumes. The container outlives its keeper, and so does what it has mounted.
func (m *maker) covers() ([]jobs.Mount, error) {
	binds := slices.Clone(m.s.Mounts)
	for _, word := range m.d.Volumes {
		v, err := parseVolume(word)
		if err != nil {
			return nil, err
		}
		if path.IsAbs(v.source) {
			binds = append(binds, jobs.Mount{Source: v.source, Destination: path.Clean(v.destination)})
		}
	}
	empty := filepath.Join(m.at.Dir, "empty")
	places := private.Places{State: m.s.Home, Base: private.BaseOf(m.at.Scratch), Allow: m.s.HostSockets}
	covers, notes, err := places.Covers(binds, empty)
	if err != nil || len(covers) == 0 {
		return nil, err
	}
	m.open.Notes = append(m.open.Notes, notes...)
	if err := os.MkdirAll(empty, 0o755); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make " + empty, Err: err}
	}
	return covers, nil
}

// argv is the command line of "create", with these flags for the limits.
func (m *maker) argv(c can, limits []string, image string) ([]string, error) {
	s := m.s
	argv := []string{"create", "--interactive", "--name", containerName(s)}
	labels, err := labelFlags([][2]string{{labelVersion, "1"}, {labelEnv, s.ID}, {labelName, s.Name}, {labelHome, s.Home}, {labelUser, uid()}})
	if err != nil {
		return nil, err
	}
	argv = append(argv, labels...)
	if !s.Persistent {
		argv = append(argv, "--rm")
	}
	mounts := append([]jobs.Mount{{Source: m.guestDir(), Destination: guestDir}}, s.Mounts...)
	if m.home != nil {
		mounts = append(mounts, *m.home)
	}
	taken := map[string]bool{}
	for _, mnt := range mounts {
		taken[path.Clean(mnt.Destination)] = true
	}
	for _, d := range m.tmp {
		taken[path.Clean(d)] = true
	}
	var volumes []string
	for _, word := range m.d.Volumes {
		v, err := parseVolume(word)
		if err != nil {
			return nil, err
		}
		if d := path.Clean(v.destination); taken[d] {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the volume %q has a destination that is taken", word),
				Hint: "give each destination once"}
		}
		taken[path.Clean(v.destination)] = true
		volumes = append(volumes, "--volume", word)
	}
	argv = append(argv, hardened(m.d.User, taken)...)
	argv = append(argv, limits...)
	if m.d.Shm != 0 {
		argv = append(argv, "--shm-size", strconv.FormatInt(int64(m.d.Shm), 10))
	}
	place, err := placeFlags(&s.Place)
	if err != nil {
		return nil, err
	}
	covers, err := m.covers()
	if err != nil {
		return nil, err
	}
	binds, err := mountFlags(slices.Concat(mounts, covers))
	if err != nil {
		return nil, err
	}
	for _, part := range [][]string{place, binds, volumes, podmanFlags(c, m.d.User), m.d.ExtraArgs, {image, "guest", "--locked"}} {
		argv = append(argv, part...)
	}
	return argv, nil
}
