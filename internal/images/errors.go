package images

import (
	"errors"
	"os"
	"slices"
	"strings"

	"berth/internal/sys/pattern"
	"berth/internal/sys/run"
	"berth/jobs"
)

// CredentialNames are the variables that are set here of those by which a
// registry knows the user; with proxies, also the way there. What fetches an
// image in a job is given them.
func (c *Cache) CredentialNames(getenv func(string) string, proxies bool) []string {
	var out []string
	for _, name := range c.Tool.credentials() {
		if getenv(name) != "" && (proxies || !strings.HasSuffix(strings.ToLower(name), "_proxy")) {
			out = append(out, name)
		}
	}
	return out
}

// fetchError says why a reference could not be fetched, by the words of the
// container program and of registries.
func (t Tool) fetchError(ref string, err error) error {
	e := &jobs.Error{Kind: jobs.KindInfra, Msg: "fetch " + ref, Err: err}
	text := err.Error()
	var failed *run.Error
	if errors.As(err, &failed) && failed.Err == nil {
		text = failed.Stderr
		e.Err = errors.New(LastLine(text))
	}
	text = strings.ToLower(text)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	status := statusIn(text)
	switch {
	case has("no space left", "disk quota exceeded"):
		e.Hint = "make room where images are kept and on the scratch disk of " + Hostname() + ": df -h"
	case has("toomanyrequests", "too many requests") || status == "429":
		e.Kind, e.Hint = jobs.KindAgain, "the registry answers only so many requests: give it a login ("+t.HintLogin()+"), or try later"
	case has("no such host", "dial tcp", "i/o timeout", "connection refused", "network is unreachable",
		"no route to host", "name resolution", "tls handshake timeout"):
		e.Hint = "is there a network on " + Hostname() + "? Else pull the image where there is one (berth image pull there, or with --in-job on a node)"
	case has("unauthorized", "authentication required", "access to the resource is denied", "denied:") || status == "401" || status == "403":
		e.Kind, e.Hint = jobs.KindAuth, "either it does not exist or it needs a login: "+t.HintLogin()
	case has("manifest unknown", "name unknown", "manifest_unknown", "name_unknown", "not found", "no such file", "does not exist") || status == "404":
		e.Kind, e.Hint = jobs.KindNotFound, "is the name right? "+ref
	case has("no library client", "no-default-remote"):
		e.Kind, e.Hint = jobs.KindConfig, "no library is configured here: "+t.AddRemote+", or take the image from a registry (docker://)"
	case has("invalid reference", "could not parse reference"):
		e.Kind, e.Hint = jobs.KindUsage, "write it as docker://[HOST/]NAME:TAG"
	case has("reading the docker archive"):
		e.Kind, e.Hint = jobs.KindUsage, "is it what docker save has written?"
	case strings.HasPrefix(status, "5"), has("internal server error", "unexpected eof", "connection reset"):
		e.Hint = "the registry failed in the middle of it: try again later"
	default:
		e.Hint = "see what it says by hand: " + t.ByHand(ref)
	}
	return e
}

// statusWord is a status of HTTP as programs tell it: a number by itself is none,
// as ports and digests have such digits, too.
var statusWord = pattern.Lazy(`\b(?:status(?: code)?:?|http(?:/\d(?:\.\d)?)?|code:?|error:?) ([45]\d\d)\b|` +
	`\b([45]\d\d) (?:bad|unauthorized|forbidden|not found|too many|internal|service|gateway)`)

// statusIn is the status of HTTP in a text of lower-case letters, or "".
func statusIn(text string) string {
	if m := statusWord().FindStringSubmatch(text); m != nil {
		return m[1] + m[2]
	}
	return ""
}

// hintRoom is for what cannot be written: a full disk has no bytes or no inodes
// left, or the user's quota of one of them is used up.
func hintRoom(dir string) string {
	return "is there room? df -h " + dir + "; df -i " + dir + "; quota"
}

func noRoom(err error, dir string) error {
	if jobs.KindOf(err) == jobs.KindConfig {
		return err
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "make a directory for images", Err: err, Hint: hintRoom(dir)}
}

// passing tells whether the same may work a little later.
func passing(err error) bool {
	if jobs.KindOf(err) == jobs.KindAgain {
		return true
	}
	return jobs.KindOf(err) == jobs.KindInfra && strings.HasPrefix(jobs.HintOf(err), "the registry failed")
}

// LastLine is what the container program said last, without the word by which
// it says how bad it is.
func LastLine(text string) string {
	lines := strings.Split(run.LastWords(text), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	for _, w := range []string{"FATAL:", "ERROR:"} {
		if s, ok := strings.CutPrefix(last, w); ok {
			return strings.TrimSpace(s)
		}
	}
	return last
}

// Hostname names this machine for people.
func Hostname() string {
	h, err := os.Hostname()
	if err != nil {
		return "this machine"
	}
	return h
}
