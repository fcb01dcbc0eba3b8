package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// The fake docker speaks of a daemon only where the script has made the file
// "docker"; what it pulls stands in "images". Its containers are those of the
// fake apptainer.
func docker(args []string) int {
	c := theCluster()
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if !slices.Contains([]string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "GOCOVERDIR"}, name) {
			return unexpected("docker with "+name+" in its environment", args)
		}
	}
	fails := func(text string) int {
		fmt.Fprintln(os.Stderr, text)
		return 1
	}
	if _, up := c.order("docker"); !up {
		return fails("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?")
	}
	boxes := filepath.Join(c.dir, "docker-containers")
	images, _ := c.order("images")
	have := func(image string) bool { return slices.Contains(strings.Fields(images), image) }
	const asJSON = "{{json .}}"
	switch {
	case strictly("docker", args, []string{"version", "--format", asJSON}):
		fmt.Println(`{"Client":{"Version":"28.2.2"},"Server":{"Version":"28.2.2"}}`)
	case strictly("docker", args, []string{"info", "--format", asJSON}):
		info, ok := c.order("docker-info")
		if !ok {
			info = `{"Driver":"overlay2","CgroupDriver":"systemd","CgroupVersion":"2","MemoryLimit":true,"SwapLimit":true,"CpuCfsQuota":true,"PidsLimit":true}`
		}
		fmt.Println(info)
	case strictly("docker", args, []string{"image", "inspect", "--format", "{{.Id}}", "*"}):
		if !have(args[4]) {
			return fails("Error response from daemon: No such image: " + args[4])
		}
		fmt.Println("sha256:0123")
	case strictly("docker", args, []string{"pull", "*"}):
		if said, ok := c.order("docker-pull-fails"); ok {
			return fails("Error response from daemon: " + said)
		}
		fmt.Println("12: Pulling from library/" + args[1])
		if err := os.WriteFile(filepath.Join(c.dir, "images"), []byte(images+" "+args[1]), 0o600); err != nil {
			return fails(err.Error())
		}
	case strictly("docker", args, []string{"container", "inspect", "*"}):
		b, err := os.ReadFile(filepath.Join(boxes, args[2], "inspect"))
		if err != nil {
			return fails("Error response from daemon: No such container: " + args[2])
		}
		fmt.Println(string(b))
	case strictly("docker", args, []string{"rm", "--force", "--volumes", "*"}):
		return fails("Error response from daemon: No such container: " + args[3]) // they all leave by themselves
	case len(args) > 0 && args[0] == "run":
		box, err := parseRun(args)
		if err != nil || !have(box.image) {
			return unexpected(fmt.Sprintf("docker (%v)", err), args)
		}
		if said, ok := c.order("docker-fails"); ok {
			return fails("docker: Error response from daemon: " + said)
		}
		return box.run(filepath.Join(boxes, box.name))
	default:
		return unexpected("docker", args)
	}
	return 0
}

// dockerBox is a "docker run" command line.
type dockerBox struct {
	name, image string
	mounts      [][3]string
	command     []string
}

// parseRun takes what every container of berth's must have, word by word, then
// limits and mounts.
func parseRun(args []string) (*dockerBox, error) {
	box := &dockerBox{}
	if len(args) < 5 {
		return nil, errors.New("too short")
	}
	box.name = args[4]
	user := fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	caps := ""
	if os.Getuid() == 0 {
		caps = " --cap-add CHOWN --cap-add DAC_OVERRIDE --cap-add FOWNER --cap-add SETGID --cap-add SETUID --cap-add KILL"
	}
	must := strings.Fields("run --rm -i --name " + box.name + " --label berth.version=1 --label berth.attempt=" + box.name +
		" --log-driver none --stop-signal KILL --no-healthcheck --restart no --cap-drop ALL" + caps + " --user " + user + " --security-opt no-new-privileges" +
		" --tmpfs /tmp:rw,nosuid,nodev,exec,size=512m --tmpfs /var/tmp:rw,nosuid,nodev,noexec,size=256m --tmpfs /run:rw,nosuid,nodev,noexec,size=64m" +
		" --workdir / --entrypoint /.berth/node --pids-limit 256")
	if len(args) < len(must) || !slices.Equal(args[:len(must)], must) {
		return nil, fmt.Errorf("want %q first", must)
	}
	rest := args[len(must):]
	for len(rest) > 2 && strings.HasPrefix(rest[0], "-") {
		switch rest[0] {
		case "--cpus", "--memory", "--memory-swap":
		case "--mount":
			m, err := parseMount(rest[1])
			if err != nil {
				return nil, err
			}
			box.mounts = append(box.mounts, m)
		default:
			return nil, fmt.Errorf("unknown flag: %s", rest[0])
		}
		rest = rest[2:]
	}
	if len(rest) != 2 || rest[1] != "guest" || !slices.ContainsFunc(box.mounts, func(m [3]string) bool { return m[1] == guestPath }) {
		return nil, fmt.Errorf("no image, no guest: %q", rest)
	}
	box.image, box.command = rest[0], []string{guestPath, "guest"}
	return box, nil
}

func (b *dockerBox) run(dir string) int {
	fails := func(err error) int {
		fmt.Fprintln(os.Stderr, "docker: Error response from daemon:", err)
		return 125
	}
	for _, d := range []string{"upper", "empty"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return fails(err)
		}
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// The real one mounts the tree of cgroups read-only.
	words := []string{filepath.Join(dir, "root"), "/", dir, dir, filepath.Join(dir, "empty"), "/sys/fs/cgroup", "readonly"}
	for _, m := range b.mounts {
		words = append(words, m[:]...)
	}
	cmd := exec.Command("/proc/self/exe", append(append(words, "--"), b.command...)...)
	cmd.Args[0] = containerInit
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + os.Getenv("HOME"), "HOSTNAME=0123456789ab"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	signal.Notify(make(chan os.Signal, 8), syscall.SIGTERM, syscall.SIGINT, syscall.SIGCONT)
	if err := cmd.Start(); err != nil {
		return fails(err)
	}
	about, err := json.Marshal([]map[string]any{{
		"Id": b.name, "State": map[string]any{"Status": "running", "Running": true, "Pid": cmd.Process.Pid},
		"Config": map[string]any{"Labels": map[string]string{"berth.version": "1", "berth.attempt": b.name}},
	}})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "inspect"), about, 0o600)
	}
	if err != nil {
		return fails(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) {
		return exit.ExitCode()
	} else if err != nil {
		return fails(err)
	}
	return 0
}
