package docker

import (
	"slices"
	"strings"
)

// All that is other with Podman stands here. It has no daemon, so what asks
// for one is answered by the program; its ids, labels, inspect, start -a -i,
// kill and rm are Docker's.

// podmanHost and podmanStore are parts of "podman info".
type podmanHost struct {
	CgroupControllers []string `json:"cgroupControllers"`
	CgroupVersion     string   `json:"cgroupVersion"`
	Security          struct {
		Rootless bool `json:"rootless"`
	} `json:"security"`
}

type podmanStore struct {
	GraphDriverName string            `json:"graphDriverName"`
	GraphStatus     map[string]string `json:"graphStatus"`
}

func (h *podmanHost) can(s podmanStore) can {
	has := func(name string) bool { return slices.Contains(h.CgroupControllers, name) }
	c := can{
		podman: true, rootless: h.Security.Rootless, memory: has("memory"), swap: has("memory"), cpus: has("cpu"), pids: has("pids"),
		why: "cgroup " + h.CgroupVersion + " with the controllers: " + strings.Join(h.CgroupControllers, " "),
	}
	c.disk = holdsSize(s.GraphDriverName, [][2]string{{"Backing Filesystem", s.GraphStatus["Backing Filesystem"]}})
	return c
}

// podmanFlags are flags that only Podman has: the caller's proxies, passwords
// and all, stay out, and a user named by the host's number is that user.
func podmanFlags(c can, user string) []string {
	if !c.podman {
		return nil
	}
	flags := []string{"--http-proxy=false"}
	if c.rootless && user != "" {
		flags = append(flags, "--userns", "keep-id")
	}
	return flags
}

// qualified gives a short name the registry that Docker takes it from; Podman
// asks, or refuses where no user can answer.
func qualified(image string, podman bool) string {
	if !podman || strings.HasPrefix(image, pinned) {
		return image
	}
	first, _, deep := strings.Cut(image, "/")
	switch {
	case !deep:
		return "docker.io/library/" + image
	case strings.ContainsAny(first, ".:") || first == "localhost":
		return image
	}
	return "docker.io/" + image
}
