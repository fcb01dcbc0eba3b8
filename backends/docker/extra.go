package docker

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"berth/jobs"
)

// extra is one flag that a user may add, with what its value must be. Flags
// that are not listed are refused: what a flag of a later version does to the
// containment is not known here.
type extra struct {
	bool  bool
	check func(value string) string // why not, or ""
}

// anything is a value that cannot weaken the containment.
func anything(string) string { return "" }

// notHosts refuses the namespaces of the host and of other containers.
func notHosts(v string) string {
	if v == "host" || strings.HasPrefix(v, "container:") || strings.HasPrefix(v, "ns:") {
		return "shares a namespace with the host or another container"
	}
	return ""
}

var extras = map[string]extra{
	"--add-host": {check: anything}, "--annotation": {check: anything}, "--blkio-weight": {check: anything},
	"--cpu-shares": {check: anything}, "--cpuset-cpus": {check: anything}, "--cpuset-mems": {check: anything},
	"--dns": {check: anything}, "--dns-option": {check: anything}, "--dns-search": {check: anything}, "--domainname": {check: anything},
	"--expose": {check: anything}, "--gpus": {check: anything}, "--group-add": {check: anything}, "--hostname": {check: anything},
	"--ip": {check: anything}, "--ip6": {check: anything}, "--link": {check: anything}, "--mac-address": {check: anything},
	"--memory-reservation": {check: anything}, "--oom-score-adj": {check: anything}, "--platform": {check: anything},
	"--network": {check: anything}, "--net": {check: anything}, "--network-alias": {check: anything},
	"--publish": {check: anything}, "-p": {check: anything}, "--runtime": {check: anything}, "--ulimit": {check: anything}, "--sysctl": {check: anything},
	"--init": {bool: true, check: anything}, "--read-only": {bool: true, check: anything},
	"--publish-all": {bool: true, check: anything}, "-P": {bool: true, check: anything},
	"--cap-drop": {check: anything}, "--userns": {check: notHosts}, "--cgroupns": {check: notHosts},
	"--ipc": {check: notHosts}, "--uts": {check: notHosts},
	"--cap-add": {check: usualCapability}, "--security-opt": {check: noWeaker}, "--device": {check: computeDevice},
	"--label": {check: foreignLabel}, "-l": {check: foreignLabel},
	"--tmpfs": {check: func(v string) string {
		d, _, _ := strings.Cut(v, ":")
		if !path.IsAbs(d) || checkDestination(d) != nil {
			return "is at a place inside that is berth's or the kernel's"
		}
		return ""
	}},
}

// instead names berth's own word for a flag.
var instead = map[string]string{
	"--volume": "volumes", "-v": "volumes", "--mount": "volumes", "--volumes-from": "volumes", "--env": "env", "-e": "env", "--env-file": "env",
	"--memory": "memory", "-m": "memory", "--memory-swap": "memory", "--cpus": "cpus", "--pids-limit": "pids", "--storage-opt": "disk", "--shm-size": "shm",
	"--user": "user", "-u": "user", "--workdir": "dir", "-w": "dir",
}

// usualCapability allows those that Docker gives by default.
func usualCapability(v string) string {
	v = strings.TrimPrefix(strings.ToUpper(v), "CAP_")
	switch v {
	case "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
		"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT":
		return ""
	}
	return "is not one of the capabilities that Docker gives by default"
}

// noWeaker allows what makes the containment stronger or other, not weaker. The
// daemon takes the name from its value at "=", and where there is none at ":";
// of the value of no-new-privileges it takes every word of strconv.ParseBool.
func noWeaker(v string) string {
	name, value, given := strings.Cut(v, "=")
	if !given {
		name, value, given = strings.Cut(v, ":")
	}
	off := strings.Contains(strings.ToLower(value), "unconfined")
	switch name {
	case "no-new-privileges":
		on, err := strconv.ParseBool(value)
		off = given && (err != nil || !on)
	case "seccomp":
		off = value != "builtin" // a file may allow everything
	case "label":
		kind, of, _ := strings.Cut(value, ":")
		// spc_t is SELinux's name of a container that is not held.
		off = off || !slices.Contains([]string{"user", "role", "type", "level", "filetype"}, kind) || of == "spc_t"
	case "apparmor", "mask":
	default:
		off = true
	}
	if off {
		return "turns a protection off, or may"
	}
	return ""
}

// computeDevice allows devices for computing; a disk would give the host away.
func computeDevice(v string) string {
	dev := path.Clean(strings.SplitN(v, ":", 2)[0])
	for _, p := range []string{"/dev/dri", "/dev/kfd", "/dev/kvm", "/dev/fuse", "/dev/infiniband", "/dev/accel"} {
		if within(dev, p) {
			return ""
		}
	}
	if strings.HasPrefix(dev, "/dev/nvidia") || !strings.HasPrefix(dev, "/") && strings.Contains(dev, "=") { // a CDI name
		return ""
	}
	return "is not a device for computing (/dev/dri, /dev/kfd, /dev/kvm, /dev/fuse, /dev/infiniband, /dev/accel, /dev/nvidia*)"
}

func foreignLabel(v string) string {
	if strings.HasPrefix(v, "berth.") {
		return "is one of berth's labels"
	}
	return ""
}

// checkExtra refuses arguments that would break the containment or that berth
// sets itself. It returns where they mount a tmpfs.
func checkExtra(args []string, network string) (tmpfs []string, err error) {
	fail := func(arg, why, hint string) ([]string, error) {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the extra docker argument %q %s", arg, why), Hint: hint}
	}
	for i := 0; i < len(args); i++ {
		if err := jobs.CheckText("an extra docker argument", args[i]); err != nil {
			return nil, err
		}
		flag, value, given := strings.Cut(args[i], "=")
		known, ok := extras[flag]
		switch {
		case instead[flag] != "":
			return fail(args[i], "is berth's own to set", "use the key "+instead[flag])
		case !strings.HasPrefix(flag, "-"):
			return fail(args[i], "is not a flag", "arguments after the image cannot be added")
		case !ok:
			return fail(args[i], "is refused: it could break the containment, or is berth's own",
				"these may be added: "+strings.Join(extraNames(), " "))
		case !given && !known.bool:
			if i++; i == len(args) {
				return fail(flag, "has no value", "write "+flag+"=VALUE")
			}
			if value = args[i]; jobs.CheckText("", value) != nil {
				return nil, jobs.CheckText("an extra docker argument", value)
			}
		}
		word := flag + " " + value
		if why := known.check(value); why != "" {
			return fail(word, "is refused: it "+why, "leave it out")
		}
		switch flag {
		case "--network", "--net":
			if network == "none" && value != "none" {
				return fail(word, `contradicts network = "none"`, "leave one of them out")
			}
		case "--tmpfs":
			d, _, _ := strings.Cut(value, ":")
			tmpfs = append(tmpfs, d)
		}
	}
	return tmpfs, nil
}

func extraNames() []string {
	var out []string
	for n := range extras {
		if strings.HasPrefix(n, "--") {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}
