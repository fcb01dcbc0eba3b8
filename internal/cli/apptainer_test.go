package cli_test

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The fake apptainer reads its command line as strictly as the real one and
// then makes a small container of its own: user, mount and PID namespaces, a
// new root in which the host's directories stand, with the job's own /tmp and
// with the mounts it was given. Without the namespaces a command in /work
// would work in the host's.
const (
	guestPath     = "/.berth/node"
	containerInit = "apptainer-init"
	// hostnameInside is the variable that tells it the container's own name.
	hostnameInside = "STANDIN_HOSTNAME"
	fakeVersion    = "apptainer version 1.4.5"
)

// container is an "apptainer exec" command line.
type container struct {
	cwd, workdir, overlay, image, hostname, network string
	mounts                                          [][3]string // source, destination, "readonly" or ""
	command                                         []string
}

func apptainer(args []string) int {
	if strictly("apptainer", args, version) {
		fmt.Println(fakeVersion)
		return 0
	}
	if len(args) == 3 && args[0] == "build" && !filepath.IsAbs(args[2]) {
		return fetchImage(args)
	}
	c := theCluster()
	if len(args) == 4 && args[0] == "build" && args[1] == "--sandbox" {
		if _, ok := c.order("unpacks"); ok {
			return unpackImage(args[2])
		}
		fmt.Fprintln(os.Stderr, "FATAL:   this stand-in unpacks no image")
		return 255
	}
	if len(args) == 3 && args[0] == "build" {
		return packImage(args[1], args[2])
	}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if (strings.HasPrefix(name, "APPTAINER") && name != "APPTAINER_CONFIGDIR" && name != "APPTAINER_CACHEDIR") ||
			(strings.HasPrefix(name, "SINGULARITY") && name != "SINGULARITY_CACHEDIR") || strings.HasPrefix(name, "SLURM_") {
			return unexpected("apptainer with "+name+" in its environment", args)
		}
	}
	if said, ok := c.order("apptainer-fails"); ok {
		fmt.Fprintln(os.Stderr, said)
		return 255
	}
	if strictly("apptainer", args, []string{"buildcfg"}) {
		fmt.Println("LIBEXECDIR=/nowhere\nAPPTAINER_CONF_FILE=" + filepath.Join(c.dir, "apptainer.conf"))
		return 0
	}
	if isTrial(args) {
		// Its layers are no overlays: whether the real one's are right, others
		// try. They are, unless the script says why not.
		if said, ok := c.order("layers-wrong"); ok {
			fmt.Println(said)
			return 1
		}
		if dir, ok := c.order("layers-wrong-in"); ok && strings.Contains(strings.Join(args, " "), strings.TrimSpace(dir)) {
			fmt.Println("Input/output error")
			return 1
		}
		return 0
	}
	box, err := parseExec(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "FATAL:  ", err)
		return unexpected("apptainer", args)
	}
	root := filepath.Join(box.workdir, "root")
	words := []string{root, box.cwd, box.workdir, box.overlay}
	for _, m := range box.mounts {
		words = append(words, m[:]...)
	}
	cmd := exec.Command("/proc/self/exe", append(append(words, "--"), box.command...)...)
	cmd.Args[0] = containerInit
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + os.Getenv("HOME"), "LANG=C",
		"APPTAINER_CONTAINER=" + box.image, "APPTAINER_NAME=" + filepath.Base(box.image), "PS1=Apptainer> "}
	flags := uintptr(syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID)
	if box.hostname != "" {
		flags |= syscall.CLONE_NEWUTS
		cmd.Env = append(cmd.Env, hostnameInside+"="+box.hostname)
	}
	if _, forgets := c.order("network-forgotten"); box.network != "" && !forgets {
		flags |= syscall.CLONE_NEWNET
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  flags,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	// The real one passes signals on, or lets the container decide.
	signal.Notify(make(chan os.Signal, 8), syscall.SIGTERM, syscall.SIGINT, syscall.SIGCONT)
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		if exit.ExitCode() < 0 {
			return 255
		}
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "FATAL:  ", err)
		return 255
	}
	return 0
}

// unpackImage makes the files of any image.
func unpackImage(root string) int {
	err := os.MkdirAll(filepath.Join(root, "etc"), 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "etc", "of-image"), nil, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "FATAL:  ", err)
		return 255
	}
	return 0
}

// packImage makes an image that has the names of the files in a directory, and what is in them, as text.
func packImage(made, root string) int {
	var text []byte
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		text = fmt.Appendf(text, "\n%s: %s", strings.TrimPrefix(p, root), b)
		return err
	})
	if err == nil {
		err = os.WriteFile(made, sif(text...), 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "FATAL:  ", err)
		return 255
	}
	return 0
}

// isTrial tells whether a way of having containers is tried, by flags that some
// container of berth's has.
func isTrial(args []string) bool {
	n := len(args)
	if n < 5 || args[0] != "exec" || args[n-2] != "try" || args[n-3] != guestPath {
		return false
	}
	rest := args[1 : n-4] // an image, the guest and its words follow
	for len(rest) > 0 {
		switch {
		case slices.Contains([]string{"--containall", "--no-home", "--cleanenv", "--no-eval", "--userns", "--writable", "--fakeroot", "--net"}, rest[0]):
			rest = rest[1:]
		case slices.Contains([]string{"--pwd", "--cwd", "--workdir", "--overlay", "--mount", "--network"}, rest[0]) && len(rest) > 1:
			rest = rest[2:]
		default:
			return false
		}
	}
	return true
}

// parseExec takes each flag that a container of berth's must have exactly
// once, and no other.
func parseExec(args []string) (*container, error) {
	if len(args) == 0 || args[0] != "exec" {
		return nil, errors.New("not exec")
	}
	box := &container{}
	seen := map[string]int{}
	values := map[string]*string{"--pwd": &box.cwd, "--cwd": &box.cwd, "--workdir": &box.workdir, "--overlay": &box.overlay, "--hostname": &box.hostname, "--network": &box.network}
	rest := args[1:]
	for len(rest) > 1 && strings.HasPrefix(rest[0], "-") {
		flag := rest[0]
		seen[flag]++
		rest = rest[1:]
		switch {
		case flag == "--mount":
			m, err := parseMount(rest[0])
			if err != nil {
				return nil, err
			}
			box.mounts, rest = append(box.mounts, m), rest[1:]
		case values[flag] != nil:
			*values[flag], rest = rest[0], rest[1:]
		case slices.Contains([]string{"--containall", "--no-home", "--cleanenv", "--no-eval", "--nv", "--rocm", "--net"}, flag):
		default:
			return nil, fmt.Errorf("unknown flag: %s", flag)
		}
	}
	for _, flag := range []string{"--containall", "--no-home", "--cleanenv", "--no-eval", "--workdir", "--overlay"} {
		if seen[flag] != 1 {
			return nil, fmt.Errorf("flag %s %d times", flag, seen[flag])
		}
	}
	if seen["--net"] != seen["--network"] || box.network != "" && box.network != "none" {
		return nil, fmt.Errorf("network %q", box.network)
	}
	if seen["--pwd"]+seen["--cwd"] != 1 || len(rest) < 2 {
		return nil, fmt.Errorf("no working directory, image or command")
	}
	box.image, box.command = rest[0], rest[1:]
	for _, d := range []string{box.workdir, filepath.Join(box.overlay, "upper"), filepath.Join(box.overlay, "work")} {
		if fi, err := os.Stat(d); err != nil || !fi.IsDir() {
			return nil, fmt.Errorf("%s is not a directory", d)
		}
	}
	_, err := os.Stat(box.image)
	return box, err
}

func parseMount(word string) (m [3]string, err error) {
	fields, err := csv.NewReader(strings.NewReader(word)).Read()
	if err != nil || len(fields) < 3 || fields[0] != "type=bind" {
		return m, fmt.Errorf("mount %q: %w", word, errors.Join(err, errors.New("want type=bind,source=...,destination=...[,readonly]")))
	}
	var ok1, ok2 bool
	m[0], ok1 = strings.CutPrefix(fields[1], "source=")
	m[1], ok2 = strings.CutPrefix(fields[2], "destination=")
	if !ok1 || !ok2 || len(fields) > 4 || (len(fields) == 4 && fields[3] != "readonly") {
		return m, fmt.Errorf("mount %q", word)
	}
	if len(fields) == 4 {
		m[2] = fields[3]
	}
	_, err = os.Stat(m[0])
	return m, err
}

// containerMain is the first process in the namespaces: it makes the root and
// becomes the command.
func containerMain(args []string) int {
	if name := os.Getenv(hostnameInside); name != "" {
		if err := errors.Join(syscall.Sethostname([]byte(name)), os.Unsetenv(hostnameInside)); err != nil {
			fmt.Fprintln(os.Stderr, "FATAL:   container creation failed:", err)
			return 255
		}
	}
	at := slices.Index(args, "--")
	if err := enter(args[0], args[1], args[2], args[3], args[4:at]); err != nil {
		fmt.Fprintln(os.Stderr, "FATAL:   container creation failed:", err)
		return 255
	}
	command := args[at+1:]
	fmt.Fprintf(os.Stderr, "FATAL:   exec %s: %v\n", command[0], syscall.Exec(command[0], command, os.Environ()))
	return 255
}

func enter(root, cwd, workdir, overlay string, mounts []string) error {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("new root: %w", err)
	}
	tmp := filepath.Join(workdir, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return err
	}
	mounts = append([]string{tmp, "/tmp", "", filepath.Join(overlay, "upper"), "/layer", ""}, mounts...)
	// What the host has in /run and /var is what no container has.
	own := map[string]bool{"proc": true, ".berth": true, "run": true, "var": true}
	for i := 1; i < len(mounts); i += 3 {
		own[strings.Split(mounts[i], "/")[1]] = true
	}
	if err := host(root, own); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
		return err
	}
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for i := 0; i < len(mounts); i += 3 {
		to := filepath.Join(root, mounts[i+1])
		if err := bind(mounts[i], to); err != nil {
			return err
		}
		if mounts[i+2] != "" {
			if err := readOnly(to); err != nil {
				return err
			}
		}
	}
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	return os.Chdir(cwd)
}

// host puts what stands in the host's root into the new one.
func host(root string, without map[string]bool) error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := "/" + e.Name()
		switch {
		case without[e.Name()]:
		case e.Type()&os.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			if err := os.Symlink(to, filepath.Join(root, path)); err != nil {
				return err
			}
		case e.IsDir():
			if err := bind(path, filepath.Join(root, path)); err != nil {
				return err
			}
		}
	}
	return nil
}

func bind(from, to string) error {
	fi, err := os.Stat(from)
	if err != nil {
		return err
	}
	if fi.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
		if _, err = os.Lstat(to); err != nil { // those of /proc are there
			err = os.WriteFile(to, nil, 0o600)
		}
	}
	if err == nil {
		err = unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err != nil {
		return fmt.Errorf("bind %s: %w", from, err)
	}
	return nil
}

// readOnly makes a mount read-only. What it may not do by its source stays so: a
// user namespace can only add to that.
func readOnly(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return err
	}
	kept := uintptr(st.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME)
	if err := unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|kept, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", path, err)
	}
	return nil
}
