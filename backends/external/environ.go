package external

import (
	"slices"
	"strings"
)

// passed are the variables that every program gets, in lower case.
var passed = []string{"path", "home", "user", "logname", "shell", "lang", "lc_all", "tz", "tmpdir",
	"xdg_config_home", "xdg_data_home", "xdg_state_home", "xdg_cache_home", "xdg_runtime_dir",
	"ssl_cert_file", "ssl_cert_dir", "http_proxy", "https_proxy", "no_proxy", "all_proxy"}

// Prefix is what the variables of a backend's program begin with: "MODAL_".
func Prefix(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_"
}

// Keys are those variables of an environment that are of a backend's program
// alone: its keys may be among them.
func Keys(name string, environ []string) []string {
	var out []string
	for _, kv := range environ {
		if strings.HasPrefix(kv, Prefix(name)) {
			out = append(out, kv)
		}
	}
	return out
}

// Environ is the environment that the program of a backend is started with, of
// the one here. It is not the sandbox's.
func Environ(name string, environ []string) []string {
	out := []string{}
	for _, kv := range environ {
		n, _, _ := strings.Cut(kv, "=")
		if slices.Contains(passed, strings.ToLower(n)) {
			out = append(out, kv)
		}
	}
	return append(out, Keys(name, environ)...)
}
