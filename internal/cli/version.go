package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"berth/internal/node/nodebin"
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

func (a *app) versionCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "version",
		Long: `Print the version of berth.
` + exitHelp + "0.",
		Example: `  berth version`,
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return a.printVersion() },
	}
	a.jsonFlag(c)
	return c
}

func (a *app) printVersion() error {
	v := buildVersion()
	if a.json {
		return a.printJSON(map[string]any{"version": v.version, "commit": v.commit,
			"go": v.goVersion, "os": v.os, "arch": v.arch, "embedded_node": v.embedded})
	}
	_, err := fmt.Fprintf(a.stdout, "berth %s %s/%s %s\n", v.version, v.os, v.arch, v.goVersion)
	return err
}
