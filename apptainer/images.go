package apptainer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/run"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// image is the read-only part of an environment on this machine.
type image struct {
	given string // as it was asked for
	path  string // of a SIF, or of a directory
	id    string // [overlay.ImageID] or [overlay.DirID]
	dir   bool   // it is an unpacked image
}

// sources are how a reference may begin. What begins otherwise and is no
// absolute path is the name of an image in a registry.
var sources = []string{"docker://", "oras://", "library://", "shub://", "https://", "http://",
	"docker-archive:", "oci-archive:", "oci:", "docker-daemon:"}

// pulled are the sources that "build" does not know or that hold SIFs anyway.
var pulled = []string{"oras://", "library://", "shub://", "https://", "http://"}

// Reference settles how an image is named: an absolute path stays what it is,
// "debian:12" becomes "docker://debian:12".
func Reference(name string) (string, error) {
	if err := jobs.CheckText("the image", name); err != nil {
		return "", err
	}
	switch {
	case name == "":
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "no image is named", Hint: "name one: docker://debian:12, or the path of a SIF"}
	case filepath.IsAbs(name):
		return filepath.Clean(name), nil
	case slices.ContainsFunc(sources, func(s string) bool { return strings.HasPrefix(name, s) }):
		return name, nil
	case name[0] == '-' || name[0] == '.' || strings.HasSuffix(name, ".sif") || strings.Contains(name, "://") || strings.ContainsAny(name, " \\"):
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q is neither an absolute path nor a reference to an image", name),
			Hint: "name the path of a SIF from / on, or a reference such as docker://debian:12"}
	}
	return "docker://" + name, nil
}

// findImage has the image on this machine; a reference is converted the first
// time.
func (o *opener) findImage(ctx context.Context) (image, error) {
	ref, err := Reference(o.spec.Image)
	if err != nil {
		return image{}, err
	}
	if !filepath.IsAbs(ref) {
		return o.convert(ctx, ref)
	}
	img := image{given: o.spec.Image, path: ref}
	fi, err := os.Stat(ref)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return image{}, &jobs.Error{Kind: jobs.KindNotFound, Msg: "image " + ref + " does not exist on " + hostname(), Hint: "name one that does, or a reference such as docker://debian:12"}
	case err != nil:
		return image{}, &jobs.Error{Kind: jobs.KindConfig, Msg: "look at image " + ref, Err: err}
	case fi.IsDir():
		img.dir = true
		img.id, err = overlay.DirID(ref)
	default:
		img.id, err = overlay.ImageID(ref)
	}
	if err != nil {
		return image{}, &jobs.Error{Kind: jobs.KindConfig, Msg: "read the image", Err: err, Hint: jobs.HintOf(err)}
	}
	return img, nil
}

// converted is what stands beside an image made from a reference.
type converted struct {
	Version   int       `json:"version"`
	Reference string    `json:"reference"`
	ImageID   string    `json:"image_id"`
	Host      string    `json:"host"`
	Created   time.Time `json:"created"`
}

// convert makes a SIF of a reference, once: it is found by the reference from
// then on, whatever the registry has under that name by now. Of several that
// convert it at the same time, on one machine or on many, one has its image in
// place, and the others use that one.
func (o *opener) convert(ctx context.Context, ref string) (image, error) {
	dir := filepath.Join(o.spec.Home, "images")
	sum := sha256.Sum256([]byte(ref))
	key := hex.EncodeToString(sum[:16])
	img := image{given: o.spec.Image, path: filepath.Join(dir, key+".sif")}
	var err error
	if img.id, err = overlay.ImageID(img.path); err == nil {
		return img, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return image{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "read the image of " + ref, Err: err, Hint: "remove " + img.path + " to have it made again"}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return image{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a directory for images", Err: err}
	}
	done := takeTurn(ctx, filepath.Join(dir, key+".lock"), func() { o.at.Progress("another process converts " + ref + ": waiting for it") })
	defer done()
	if img.id, err = overlay.ImageID(img.path); err == nil {
		return img, nil
	}
	o.at.Progress("converting " + ref + " (once; it may take some minutes)")
	sweepOld(dir, prefixNew)
	temp, err := os.MkdirTemp(dir, prefixNew+key+"-*")
	if err != nil {
		return image{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a directory for images", Err: err}
	}
	defer func() { _ = os.RemoveAll(temp) }()
	made := filepath.Join(temp, "image.sif")
	argv := []string{o.program, "build", made, ref}
	if slices.ContainsFunc(pulled, func(s string) bool { return strings.HasPrefix(ref, s) }) {
		argv = []string{o.program, "pull", made, ref}
	}
	env, drop, err := o.buildEnviron(true)
	if err != nil {
		return image{}, err
	}
	defer drop()
	if _, err := run.Output(ctx, o.at.On, jobs.Cmd{Argv: argv, Dir: "/", Env: env}); err != nil {
		return image{}, convertError(ref, err)
	}
	id, err := overlay.ImageID(made)
	if err != nil {
		return image{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "convert " + ref, Err: err}
	}
	switch err := os.Link(made, img.path); {
	case err == nil:
		b, err := json.MarshalIndent(converted{Version: 1, Reference: ref, ImageID: id, Host: hostname(), Created: time.Now().UTC()}, "", "  ")
		if err == nil {
			_, _ = store.CreateOnce(filepath.Join(dir, key+".json"), b) // for people
		}
	case errors.Is(err, fs.ErrExist):
	default: // a file system without links: the last one wins, in one piece
		if err := os.Rename(made, img.path); err != nil {
			return image{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "put the image of " + ref + " in place", Err: err}
		}
	}
	if img.id, err = overlay.ImageID(img.path); err != nil {
		return image{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "read the image of " + ref, Err: err}
	}
	return img, nil
}

// prefixNew begins the name of what is being made.
const prefixNew = ".new-"

// sweepOld removes what was being made a day ago and is not made any more.
func sweepOld(dir, prefix string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), prefix) && time.Since(fi.ModTime()) > 24*time.Hour {
			_ = removeTree(filepath.Join(dir, e.Name()))
		}
	}
}

// credentials are the variables by which a registry knows the user, and the
// way there. They are given to the conversion of an image and to nothing else.
var credentials = []string{"APPTAINER_DOCKER_USERNAME", "APPTAINER_DOCKER_PASSWORD", "SINGULARITY_DOCKER_USERNAME", "SINGULARITY_DOCKER_PASSWORD",
	"APPTAINER_AUTHFILE", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "DOCKER_HOST",
	"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// buildEnviron is the environment of "apptainer build". Its cache and its
// temporary files go to scratch: a home directory may have no room for them.
// The user's own configuration holds the logins to registries.
func (o *opener) buildEnviron(login bool) (env []string, drop func(), err error) {
	dir := filepath.Join(o.at.Scratch, "build")
	for _, d := range []string{"cache", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a directory to convert an image in", Err: err}
		}
	}
	env = Environ(os.Getenv, "")
	for _, p := range []string{"APPTAINER_", "SINGULARITY_"} {
		env = append(env, p+"CACHEDIR="+filepath.Join(dir, "cache"), p+"TMPDIR="+filepath.Join(dir, "tmp"))
	}
	if login {
		for _, name := range credentials {
			if v := os.Getenv(name); v != "" {
				env = append(env, name+"="+v)
			}
		}
	}
	// Its own directory of configuration is not to appear in a home that has
	// none; where there is one it may hold logins.
	if _, err := os.Stat(filepath.Join(os.Getenv("HOME"), ".apptainer")); !login || err != nil {
		env = append(env, "APPTAINER_CONFIGDIR="+filepath.Join(dir, "config"))
	}
	return env, func() { _ = removeTree(dir) }, nil
}

// convertError says why a reference could not be converted, by the words of
// the container program and of registries.
func convertError(ref string, err error) error {
	e := &jobs.Error{Kind: jobs.KindInfra, Msg: "convert " + ref, Err: err}
	text := err.Error()
	var failed *run.Error
	if errors.As(err, &failed) {
		text = failed.Stderr
		e.Err = errors.New(lastLine(text))
	}
	text = strings.ToLower(text)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case has("no space left", "disk quota exceeded"):
		e.Hint = "make room where images are kept and on the node's scratch: df -h"
	case has("toomanyrequests", "too many requests"):
		e.Kind, e.Hint = jobs.KindAgain, "the registry answers only so many requests: log in (apptainer registry login), or try later"
	case has("no such host", "dial tcp", "i/o timeout", "connection refused", "network is unreachable", "no route to host", "name resolution", "tls handshake timeout"):
		e.Hint = "is there a network on " + hostname() + "? Else make the image where there is one, and name its path: apptainer build image.sif " + ref
	case has("unauthorized", "authentication required", "access to the resource is denied", "denied:", "403 forbidden", "401"):
		e.Kind, e.Hint = jobs.KindAuth, "either it does not exist or it needs a login: apptainer registry login --username NAME "+registryOf(ref)
	case has("manifest unknown", "name unknown", "not found", "no such file", "404", "does not exist"):
		e.Kind, e.Hint = jobs.KindNotFound, "is the name right? "+ref
	case has("no library client", "no-default-remote"):
		e.Kind, e.Hint = jobs.KindConfig, "no library is configured here: apptainer remote add, or take the image from a registry (docker://)"
	case has("invalid reference", "could not parse reference"):
		e.Kind, e.Hint = jobs.KindUsage, "write it as docker://[HOST/]NAME:TAG"
	case has("reading the docker archive"):
		e.Kind, e.Hint = jobs.KindUsage, "is it what docker save has written?"
	default:
		e.Hint = "see what it says by hand: apptainer build image.sif " + ref
	}
	return e
}

// registryOf is the registry that a reference names.
func registryOf(ref string) string {
	scheme, rest, _ := strings.Cut(ref, "://")
	host, _, more := strings.Cut(rest, "/")
	if !more || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host = "docker.io"
	}
	if scheme != "oras" {
		scheme = "docker"
	}
	return scheme + "://" + host
}

// lastLine is what the container program said last, without the word by which
// it says how bad it is.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	for _, w := range []string{"FATAL:", "ERROR:"} {
		if s, ok := strings.CutPrefix(last, w); ok {
			return strings.TrimSpace(s)
		}
	}
	return last
}

func hostname() string {
	h, err := os.Hostname()
	if err != nil {
		return "this machine"
	}
	return h
}
