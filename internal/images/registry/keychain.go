package registry

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"berth/internal/images"
	"berth/jobs"

	"github.com/google/go-containerregistry/pkg/authn"
)

// Keychain finds the login for a registry: that of the container program's variables,
// else what stands for the host in the file that its own variable or
// REGISTRY_AUTH_FILE names, or in config.json of the directory that
// DOCKER_CONFIG names. No other file is looked at, and no program asked, as the
// library's own keychain would.
type Keychain func(getenv string) string

func (k Keychain) find(host string, tool images.Tool) (login authn.AuthConfig, err error) {
	for _, pair := range tool.Logins {
		if u := k(pair[0]); u != "" {
			return authn.AuthConfig{Username: u, Password: k(pair[1])}, nil
		}
	}
	path := k(tool.AuthFile)
	if path == "" {
		path = k("REGISTRY_AUTH_FILE")
	}
	if path == "" {
		if dir := k("DOCKER_CONFIG"); dir != "" {
			path = filepath.Join(dir, "config.json")
		}
	}
	if path == "" {
		return login, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return login, nil
	}
	var file struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err == nil {
		err = json.Unmarshal(b, &file)
	}
	if err != nil {
		return login, &jobs.Error{Kind: jobs.KindConfig, Msg: "read the logins in " + path, Err: errors.New("it is no JSON, or may not be read"),
			Hint: "correct it, or unset the variable that names it"}
	}
	names := []string{host, "https://" + host, "https://" + host + "/v2/", "https://" + host + "/v1/"}
	if host == hubHost {
		names = append(names, "docker.io", "index.docker.io", authn.DefaultAuthKey)
	}
	for _, n := range names {
		if entry, ok := file.Auths[n]; ok {
			if json.Unmarshal(entry, &login) != nil {
				return login, &jobs.Error{Kind: jobs.KindConfig, Msg: "the login for " + host + " in " + path + " cannot be read",
					Hint: "log in again"}
			}
			return login, nil
		}
	}
	return login, nil
}
