package images

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/sys/pattern"
	"berth/jobs"
)

// sources are how a reference may begin.
var sources = []string{"docker://", "oras://", "library://", "shub://", "https://", "http://",
	"docker-archive:", "oci-archive:", "oci:", "docker-daemon:", fromBuild, fromTemplate, fromOverlay}

// pulled are the sources that "build" does not know or that hold SIFs anyway.
var pulled = []string{"oras://", "library://", "shub://", "https://", "http://"}

// named are the sources of which [ParseName] reads the names.
var named = []string{"docker://", "oras://", "library://"}

func begins(list []string, name string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(name, s) })
}

// IsReference tells whether an image is named by where it comes from, and not
// by the path of a file.
func IsReference(name string) bool { return begins(sources, name) }

// IsTagged tells whether a word without "://" is the name of an image in a
// registry, and cannot be meant as a path: it has a tag or a digest, as in
// "debian:12" or "ghcr.io/org/tool@sha256:...".
func IsTagged(name string) bool {
	if IsReference(name) || !strings.Contains(name, ":") || strings.ContainsAny(name[:1], "/.~-") ||
		strings.HasSuffix(name, ".sif") || strings.HasPrefix(name, "local:") {
		return false
	}
	n, err := ParseName("docker://" + name)
	return err == nil && (n.Tag != "latest" || strings.HasSuffix(name, ":latest"))
}

// Settle settles how an image is named: an absolute path stays what it is,
// "debian:12" becomes "docker://debian:12".
func Settle(name string) (string, error) {
	if err := jobs.CheckText("the image", name); err != nil {
		return "", err
	}
	switch {
	case name == "":
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "no image is named", Hint: "name one: docker://debian:12, or the path of a SIF"}
	case filepath.IsAbs(name):
		return filepath.Clean(name), nil
	case begins(named, name):
		if _, err := ParseName(name); err != nil {
			return "", err
		}
		return name, nil
	case IsBuilt(name):
		return name, checkBuilt(name)
	case IsReference(name):
		if err := checkPlace(name); err != nil {
			return "", err
		}
		return name, nil
	case name[0] == '-' || name[0] == '.' || strings.HasSuffix(name, ".sif") || strings.Contains(name, "://") || strings.ContainsAny(name, " \\"):
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q is neither an absolute path nor a reference to an image", name),
			Hint: "name the path of a SIF from / on, or a reference such as docker://debian:12"}
	}
	name = "docker://" + name
	if _, err := ParseName(name); err != nil {
		return "", err
	}
	return name, nil
}

// archive is the file of a reference to one.
func archive(ref string) (file string, ok bool) {
	for _, scheme := range []string{"docker-archive:", "oci-archive:"} {
		if file, ok = strings.CutPrefix(ref, scheme); ok {
			return strings.TrimPrefix(file, "//"), true
		}
	}
	return "", false
}

// checkPlace refuses a reference that would be read from another directory than
// the caller's, and one that has a password in it: it is recorded, and stands on
// command lines.
func checkPlace(ref string) error {
	if file, ok := archive(ref); ok && !filepath.IsAbs(file) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%.200q does not name a file from / on", ref),
			Hint: "give its whole path: docker-archive:/home/you/saved.tar"}
	}
	scheme, rest, ok := strings.Cut(ref, "://")
	host, _, _ := strings.Cut(rest, "/")
	if ok && strings.Contains(host, "@") {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "a reference with " + scheme + ":// must not hold a user or a password: it is recorded",
			Hint: "fetch the file by hand, and name its path"}
	}
	return nil
}

// Name is an image in a registry that speaks the OCI distribution protocol, or
// in a library of SIFs.
type Name struct {
	Scheme string // "docker", "oras" or "library"
	Host   string // with its port; "" is the library that the container program is configured for
	Repo   string
	Tag    string // "" with a digest alone
	Digest string // "sha256:...", or ""
}

// dockerHub is what a name without a host is looked up in.
const dockerHub = "docker.io"

var (
	repoForm     = pattern.Lazy(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagForm      = pattern.Lazy(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	hostForm     = pattern.Lazy(`^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?$`)
	loopbackForm = pattern.Lazy(`^(?:127(?:\.[0-9]{1,3}){3}|\[::1\])$`)
	digestForm   = pattern.Lazy(`^sha256:[0-9a-f]{64}$`)
)

// IsDigest tells whether s is "sha256:" and 64 hexadecimal digits.
func IsDigest(s string) bool { return digestForm().MatchString(s) }

// ParseName reads "docker://[HOST/]NAME[:TAG][@DIGEST]", the same with oras://,
// or "library://[HOST/]ENTITY/COLLECTION/NAME[:TAG]", of which the first two may
// be left out and the tag may be "sha256.HEX". Without a tag and a digest the
// tag is "latest".
func ParseName(ref string) (Name, error) {
	scheme, rest, _ := strings.Cut(ref, "://")
	if scheme == "library" {
		return parseLibrary(rest)
	}
	n := Name{Scheme: scheme, Host: dockerHub}
	bad := func(what string) (Name, error) {
		return Name{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%.200q names no image of a registry: %s", ref, what),
			Hint: "write it as " + scheme + "://[HOST/]NAME:TAG, the name in lower case"}
	}
	if scheme != "docker" && scheme != "oras" {
		return bad("it begins with none of docker://, oras:// and library://")
	}
	rest, n.Digest, _ = strings.Cut(rest, "@")
	if n.Digest != "" && !IsDigest(n.Digest) {
		return bad("a digest is sha256: and 64 hexadecimal digits")
	}
	first, more, found := strings.Cut(rest, "/")
	if found && (strings.ContainsAny(first, ".:") || first == "localhost") {
		if !hostForm().MatchString(first) {
			return bad("its host is none")
		}
		n.Host, rest = first, more
	}
	n.Repo = rest
	if at := strings.LastIndexByte(rest, ':'); at >= 0 {
		if n.Repo, n.Tag = rest[:at], rest[at+1:]; !tagForm().MatchString(n.Tag) {
			return bad("its tag is none")
		}
	}
	if len(n.Repo) > 255 || !repoForm().MatchString(n.Repo) {
		return bad("its name is none")
	}
	if n.Host == dockerHub && !strings.Contains(n.Repo, "/") {
		n.Repo = "library/" + n.Repo
	}
	if n.Tag == "" && n.Digest == "" {
		n.Tag = "latest"
	}
	return n, nil
}

var (
	entityForm = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*){0,2}$`)
	hashForm   = pattern.Lazy(`^sha256\.([0-9a-f]{64})$`)
)

// parseLibrary reads what follows "library://", as the container program does:
// with four words the first one is a host.
func parseLibrary(rest string) (Name, error) {
	n := Name{Scheme: "library", Tag: "latest"}
	bad := func(what string) (Name, error) {
		return Name{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%.200q names no image of a library: %s", "library://"+rest, what),
			Hint: "write it as library://ENTITY/COLLECTION/NAME:TAG"}
	}
	path := rest
	if strings.Count(rest, "/") > 2 {
		if n.Host, path, _ = strings.Cut(rest, "/"); !hostForm().MatchString(n.Host) {
			return bad("its host is none")
		}
	}
	path, tag, tagged := strings.Cut(path, ":")
	if n.Repo = path; len(path) > 255 || !entityForm().MatchString(path) {
		return bad("its name is none")
	}
	if !tagged {
		return n, nil
	}
	if m := hashForm().FindStringSubmatch(tag); m != nil {
		n.Tag, n.Digest = "", "sha256:"+m[1]
		return n, nil
	}
	if n.Tag = tag; !tagForm().MatchString(tag) {
		return bad("its tag is none")
	}
	return n, nil
}

// Loopback tells whether the registry is on this machine, where plain HTTP is
// spoken.
func (n Name) Loopback() bool {
	host := n.Host
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return host == "localhost" || loopbackForm().MatchString(host) // and not 127.example.org
}

// At is the reference of one content: with its digest in place of the tag,
// which the container program does not take beside one.
func (n Name) At(digest string) string {
	if n.Scheme == "library" {
		host := n.Host
		if host != "" {
			host += "/"
		}
		return "library://" + host + n.Repo + ":" + strings.Replace(digest, ":", ".", 1)
	}
	return n.Scheme + "://" + n.Host + "/" + n.Repo + "@" + digest
}
