package cli

import (
	"runtime"
	"runtime/debug"

	"berth/internal/nodebin"
)

// version is set by scripts/build; a plain `go build` has the module's.
var version string

type build struct {
	version, commit, goVersion, os, arch string
	embedded                             bool
}

func buildVersion() build {
	b := build{version: version, goVersion: runtime.Version(), os: runtime.GOOS, arch: runtime.GOARCH, embedded: nodebin.Embedded()}
	if info, ok := debug.ReadBuildInfo(); ok {
		if b.version == "" {
			b.version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.commit = s.Value
			}
		}
	}
	if b.version == "" || b.version == "(devel)" {
		b.version = "devel"
	}
	return b
}
