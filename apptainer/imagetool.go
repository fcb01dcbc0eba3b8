package apptainer

import (
	"os"
	"path/filepath"

	"berth/internal/images"
)

// prefixes begin the program's variables: Apptainer's own, and SingularityCE's, which
// Apptainer reads as well.
var prefixes = []string{"APPTAINER_", "SINGULARITY_"}

// ImageTool is what the cache of images knows of the program.
var ImageTool = images.Tool{
	Logins: [][2]string{
		{"APPTAINER_DOCKER_USERNAME", "APPTAINER_DOCKER_PASSWORD"},
		{"SINGULARITY_DOCKER_USERNAME", "SINGULARITY_DOCKER_PASSWORD"},
	},
	AuthFile:  "APPTAINER_AUTHFILE",
	Libraries: []string{"APPTAINER_LIBRARY", "SINGULARITY_LIBRARY"},
	Remotes: func(home string) []string {
		files := []string{"/etc/apptainer/remote.yaml", "/usr/local/etc/apptainer/remote.yaml"}
		if filepath.IsAbs(home) {
			files = append([]string{filepath.Join(userConfig(home), "remote.yaml")}, files...)
		}
		return files
	},
	Work:         workVariables,
	ByHand:       func(ref string) string { return "apptainer build image.sif " + ref },
	AddRemote:    "apptainer remote add",
	ScriptFailed: []string{"while running %", "failed to execute %"},
}

func userConfig(home string) string { return filepath.Join(home, ".apptainer") }

// workVariables say where a program works: a home directory may have no room for its
// cache and its temporary files. Its own directory of configuration is not to appear in
// a home that has none.
func workVariables(program string, w images.Work) (env []string) {
	of := prefixes
	switch {
	case program == "":
	case filepath.Base(program) == "singularity":
		of = prefixes[1:]
	default:
		of = prefixes[:1]
	}
	for _, p := range of {
		env = append(env, p+"CACHEDIR="+w.Cache, p+"TMPDIR="+w.Temp)
		if w.Plain {
			env = append(env, p+"NOHTTPS=true")
		}
	}
	if w.Home != "" {
		if _, err := os.Stat(userConfig(w.Home)); err == nil {
			return env
		}
	}
	return append(env, prefixes[0]+"CONFIGDIR="+w.Config)
}
