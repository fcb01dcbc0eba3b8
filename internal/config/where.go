package config

import (
	"errors"
	"os"
	"path/filepath"

	"berth/jobs"
)

// Home is the state directory: $BERTH_HOME, else $XDG_STATE_HOME/berth.
func Home() (string, error) {
	if h := os.Getenv("BERTH_HOME"); h != "" {
		return h, nil
	}
	if h := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(h) {
		return filepath.Join(h, "berth"), nil
	}
	h, err := os.UserHomeDir()
	if err != nil {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "there is no place for the state", Err: err, Hint: "set HOME or BERTH_HOME"}
	}
	return filepath.Join(h, ".local", "state", "berth"), nil
}

// Dir is where the user's configuration is.
func Dir() (string, error) {
	if c := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(c) {
		return filepath.Join(c, "berth"), nil
	}
	h, err := os.UserHomeDir()
	if err == nil && !filepath.IsAbs(h) { // else it would be read from where we happen to be
		err = errors.New("HOME is not an absolute path")
	}
	if err != nil {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "there is no place for the configuration", Err: err, Hint: "set HOME or XDG_CONFIG_HOME"}
	}
	return filepath.Join(h, ".config", "berth"), nil
}

// ProfileDirs is where profiles are looked up by name: the user's own
// directory, those of $BERTH_PROFILE_PATH, which a group shares, the machine's.
func ProfileDirs() []string {
	var dirs []string
	if own := OwnProfileDir(); own != "" {
		dirs = append(dirs, own)
	}
	for _, d := range filepath.SplitList(os.Getenv("BERTH_PROFILE_PATH")) {
		if filepath.IsAbs(d) { // nothing from where we happen to be
			dirs = append(dirs, filepath.Clean(d))
		}
	}
	return append(dirs, "/etc/berth/profiles")
}

// OwnProfileDir is where the user's own profiles stand, or "".
func OwnProfileDir() string { return below("profiles") }

// AgentsDir is where the user's own adapters of agents stand, or "".
func AgentsDir() string { return below("agents") }

// TemplatesDir is where the user's own templates stand, or "".
func TemplatesDir() string { return below("templates") }

func below(name string) string {
	dir, err := Dir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, name)
}

// Here are the sources for this process, which works in dir; "" is nowhere that could
// belong to a project.
func Here(dir string) Sources {
	s := Sources{Environ: os.Environ(), Profiles: ProfileDirs(), Templates: TemplatesDir()}
	if d, err := Dir(); err == nil {
		s.User = filepath.Join(d, "config.toml")
	}
	if dir != "" {
		s.Dir = noLinks(dir)
	}
	if h, err := os.UserHomeDir(); err == nil {
		s.Home = noLinks(h)
	}
	return s
}

func noLinks(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}
