package registry

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"berth/jobs"
)

// login is a name and a password; the zero one is none.
type login struct{ user, password string }

// Keychain finds the login for a registry: that of the variables
// APPTAINER_DOCKER_USERNAME and APPTAINER_DOCKER_PASSWORD (SINGULARITY_ the
// same), else what stands for the host in the file that APPTAINER_AUTHFILE or
// REGISTRY_AUTH_FILE names, or in config.json of the directory that
// DOCKER_CONFIG names. No other file is looked at, and no program asked.
type Keychain func(getenv string) string

func (k Keychain) find(host string) (login, error) {
	for _, p := range []string{"APPTAINER_", "SINGULARITY_"} {
		if u := k(p + "DOCKER_USERNAME"); u != "" {
			return login{u, k(p + "DOCKER_PASSWORD")}, nil
		}
	}
	path := k("APPTAINER_AUTHFILE")
	if path == "" {
		path = k("REGISTRY_AUTH_FILE")
	}
	if path == "" {
		if dir := k("DOCKER_CONFIG"); dir != "" {
			path = filepath.Join(dir, "config.json")
		}
	}
	if path == "" {
		return login{}, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return login{}, nil
	}
	var file struct {
		Auths map[string]struct {
			Auth, Username, Password string
		} `json:"auths"`
	}
	if err == nil {
		err = json.Unmarshal(b, &file)
	}
	if err != nil {
		return login{}, &jobs.Error{Kind: jobs.KindConfig, Msg: "read the logins in " + path, Err: errors.New("it is no JSON, or may not be read"), Hint: "mend it, or unset the variable that names it"}
	}
	names := []string{host, "https://" + host, "https://" + host + "/v2/", "https://" + host + "/v1/"}
	if host == hubHost {
		names = append(names, "docker.io", "index.docker.io", "https://index.docker.io/v1/")
	}
	for _, n := range names {
		a, ok := file.Auths[n]
		if !ok {
			continue
		}
		if a.Auth == "" {
			return login{a.Username, a.Password}, nil
		}
		plain, err := base64.StdEncoding.DecodeString(a.Auth)
		user, password, ok := strings.Cut(string(plain), ":")
		if err != nil || !ok {
			return login{}, &jobs.Error{Kind: jobs.KindConfig, Msg: "the login for " + host + " in " + path + " cannot be read", Hint: "log in again"}
		}
		return login{user, strings.TrimRight(password, "\x00")}, nil
	}
	return login{}, nil
}
