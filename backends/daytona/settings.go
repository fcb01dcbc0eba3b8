package daytona

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"berth/backends/external/protocol"
)

const defaultURL = "https://app.daytona.io/api"

// Options of the configuration, [terminal.daytona].
const (
	optURL       = "api_url"
	optToken     = "api_token"
	optTarget    = "target"
	optOrg       = "organization_id"
	optTemplate  = "workspace_template"
	optPerTask   = "per_task_workspace"
	optDestroy   = "auto_destroy"
	optDestroyIn = "auto_destroy_after_seconds"
	optArchive   = "auto_archive_after_seconds"
	optHermes    = "hermes_task"
	optPorts     = "preview_ports"
	optImage     = "daytona_image"
)

func optionNames() []string {
	return []string{optURL, optToken, optTarget, optOrg, optTemplate, optPerTask, optDestroy, optDestroyIn, optArchive, optHermes, optPorts, optImage}
}

// settings are who asks, and what of a sandbox no request of berth's says.
type settings struct {
	url     string // without a slash at its end
	key     string
	org     string // only with a JWT
	target  string // region
	image   string
	fixed   string // template, a snapshot's name
	hermes  string // the name of a sandbox of Hermes' to use
	ports   []int
	deleted int  // minutes after a stop; 0 is at once
	strict  bool // the lifetime is the user's word, and counts for files, too
	archive int  // minutes after a stop
	put     bool // a stop of berth's archives at once
	notes   []string
}

// Timers that are not configured, in minutes.
const (
	deleteAfter  = 30 * 24 * 60
	archiveAfter = 7 * 24 * 60
	idleAfter    = 30
)

func input(format string, args ...any) *protocol.Error {
	return protocol.Errorf(protocol.Input, format, args...)
}

// settle reads the options and the environment. What the configuration says goes
// before a variable, except for the key.
func settle(options map[string]string, env func(string) string) (*settings, error) {
	first := func(words ...string) string {
		for _, w := range words {
			if w = strings.TrimSpace(w); w != "" {
				return w
			}
		}
		return ""
	}
	s := &settings{deleted: deleteAfter, archive: archiveAfter}
	s.url = strings.TrimRight(first(options[optURL], env("DAYTONA_API_URL"), env("DAYTONA_SERVER_URL"), defaultURL), "/")
	if err := checkURL(s.url); err != nil {
		return nil, err
	}
	// That of the configuration comes in the variable, as it stands there.
	key, err := expand(first(env("DAYTONA_API_KEY"), options[optToken]), env)
	if err != nil {
		return nil, err
	}
	s.key = strings.TrimSpace(key)
	s.org = first(options[optOrg], env("DAYTONA_ORGANIZATION_ID"))
	if jwt := strings.TrimSpace(env("DAYTONA_JWT_TOKEN")); s.key == "" && jwt != "" {
		if s.key = jwt; s.org == "" {
			return nil, &protocol.Error{Kind: protocol.Auth, Message: "DAYTONA_JWT_TOKEN is set, and not for which organization",
				Hint: "export DAYTONA_ORGANIZATION_ID=..."}
		}
	}
	if s.key == "" {
		return nil, &protocol.Error{Kind: protocol.Auth, Message: "there is no key for Daytona",
			Hint: "make one in the dashboard (Keys), then: export DAYTONA_API_KEY=dtn_..."}
	}
	if strings.ContainsAny(s.key, " \t\r\n") {
		return nil, &protocol.Error{Kind: protocol.Auth, Message: "the key for Daytona has blanks in it",
			Hint: "export DAYTONA_API_KEY=dtn_... as the dashboard shows it"}
	}
	s.target = first(options[optTarget], env("DAYTONA_TARGET"))
	s.image, s.fixed, s.hermes = options[optImage], options[optTemplate], options[optHermes]
	return s, s.timers(options)
}

// here tells whether the service is on this machine: then how it contains what is
// in its sandboxes, if at all, is its owner's doing.
func (s *settings) here() bool {
	u, err := url.Parse(s.url)
	return err == nil && loopback(u)
}

func loopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || strings.HasSuffix(u.Hostname(), ".localhost") || ip != nil && ip.IsLoopback()
}

// secure tells whether a key may be sent to an address.
func secure(u *url.URL) bool {
	return u.Host != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http" && loopback(u))
}

// mayHaveKey refuses the address of a sandbox's daemon, which the service names,
// where the key could be read on its way.
func mayHaveKey(to string) error {
	if u, err := url.Parse(to); err == nil && secure(u) {
		return nil
	}
	to, _, _ = strings.Cut(to, "?")
	return &protocol.Error{Kind: protocol.Unsupported,
		Message: fmt.Sprintf("the service sends the key to %q, which is not https: it is not sent there", to),
		Hint: "is DAYTONA_API_URL the address of your Daytona? One of your own " +
			"has to give its sandboxes' daemons (toolboxProxyUrl) an https address"}
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	if err == nil && secure(u) && u.RawQuery == "" && u.Fragment == "" {
		return nil
	}
	return &protocol.Error{Kind: protocol.Input, Message: fmt.Sprintf("%q is no address of a Daytona: the key goes there, so it begins with https://", s),
		Hint: "export DAYTONA_API_URL=" + defaultURL}
}

// expand puts variables in: ${NAME}, nothing else.
func expand(s string, env func(string) string) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "${")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", input("api_token: a ${ without its }")
		}
		v := env(name)
		if v == "" {
			return "", &protocol.Error{Kind: protocol.Auth, Message: "api_token names the variable " + name + ", which is not set",
				Hint: "export " + name + "=... (only variables that begin with DAYTONA_ reach the backend)"}
		}
		out.WriteString(v)
		s = after
	}
}

func (s *settings) timers(options map[string]string) error {
	minutes := func(name string, to *int) error {
		v := options[name]
		if v == "" {
			return nil
		}
		d, err := time.ParseDuration(v)
		if err != nil {
			d, err = time.ParseDuration(v + "s")
		}
		if err != nil || d < 0 || d > 10*365*24*time.Hour {
			return input("%s: %q is no number of seconds", name, v)
		}
		*to = int((d + time.Minute - 1) / time.Minute)
		return nil
	}
	flag := func(name string) (set, value bool, err error) {
		switch options[name] {
		case "":
			return false, false, nil
		case "true":
			return true, true, nil
		case "false":
			return true, false, nil
		}
		return false, false, input("%s: %q is neither true nor false", name, options[name])
	}
	if err := minutes(optArchive, &s.archive); err != nil {
		return err
	}
	s.put = s.archive == 0
	s.archive = max(1, min(s.archive, 30*24*60)) // 0 means the most there
	_, destroy, err := flag(optDestroy)
	if err != nil {
		return err
	}
	if destroy {
		s.deleted = 0
	}
	if err := minutes(optDestroyIn, &s.deleted); err != nil {
		return err
	}
	s.strict = options[optDestroyIn] != ""
	if set, per, err := flag(optPerTask); err != nil {
		return err
	} else if set && !per {
		s.notes = append(s.notes, "per_task_workspace = false changes nothing: "+
			"an environment has one sandbox, and tasks share it by naming the same environment")
	}
	for w := range strings.FieldsFuncSeq(options[optPorts], func(r rune) bool { return strings.ContainsRune("[], \"", r) }) {
		n, err := strconv.Atoi(w)
		if err != nil || n < 1 || n > 65535 {
			return input("preview_ports: %q is no port", w)
		}
		s.ports = append(s.ports, n)
	}
	return nil
}

// environ is the process's environment, as a function for tests to replace.
var environ = os.Getenv
