//go:build linux

package internet

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
)

// Names of what the registries have. Each says "berthtest works" in its own way.
const (
	Package = "berthtest"              // of pip and npm
	Module  = "goproxy.test/berthtest" // of Go, version v1.0.0
)

const works = "berthtest works"

// packages are files by NAME/PATH.
type packages map[string][]byte

func (p packages) serve(w http.ResponseWriter, r *http.Request, name string) {
	b, ok := p[name+strings.TrimSuffix(r.URL.Path, "/")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	switch {
	case strings.HasSuffix(r.URL.Path, ".whl"), strings.HasSuffix(r.URL.Path, ".zip"), strings.HasSuffix(r.URL.Path, ".tgz"):
		w.Header().Set("Content-Type", "application/octet-stream")
	case name == "npm.test":
		w.Header().Set("Content-Type", "application/json")
	case strings.HasPrefix(r.URL.Path, "/simple/"):
		w.Header().Set("Content-Type", "text/html")
	default:
		w.Header().Set("Content-Type", "text/plain")
	}
	_, _ = w.Write(b)
}

func makePackages() (packages, error) {
	p := packages{}
	// A wheel is on another name than the index, as the real one's is.
	info := Package + "-1.0.dist-info/"
	record := Package + ".py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"
	wheel, err := zipped([][2]string{
		{Package + ".py", "print('" + works + "')\n"},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + Package + "\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: berth\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", record},
	})
	if err != nil {
		return nil, err
	}
	file := Package + "-1.0-py3-none-any.whl"
	sum := sha256.Sum256(wheel)
	p["files.pypi.test/"+file] = wheel
	p["pypi.test/simple/"+Package] = fmt.Appendf(nil,
		"<!DOCTYPE html><html><body><a href=\"https://files.pypi.test/%[1]s#sha256=%[2]x\">%[1]s</a></body></html>\n", file, sum)

	var tgz bytes.Buffer
	z := gzip.NewWriter(&tgz)
	t := tar.NewWriter(z)
	for _, f := range [][2]string{
		{"package/package.json", `{"name":"` + Package + `","version":"1.0.0","main":"index.js"}`},
		{"package/index.js", "console.log('" + works + "')\n"},
	} {
		if err := t.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}); err != nil {
			return nil, err
		}
		if _, err := t.Write([]byte(f[1])); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	long, short := sha512.Sum512(tgz.Bytes()), sha1.Sum(tgz.Bytes())
	p["npm.test/"+Package+"/-/"+Package+"-1.0.0.tgz"] = tgz.Bytes()
	p["npm.test/"+Package] = fmt.Appendf(nil,
		`{"name":%[1]q,"dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":%[1]q,"version":"1.0.0","main":"index.js",`+
			`"dist":{"tarball":"https://npm.test/%[1]s/-/%[1]s-1.0.0.tgz","shasum":%[2]q,"integrity":"sha512-%[3]s"}}}}`,
		Package, hex.EncodeToString(short[:]), base64.StdEncoding.EncodeToString(long[:]))

	mod := "module " + Module + "\n\ngo 1.21\n"
	at := Module + "@v1.0.0/"
	module, err := zipped([][2]string{
		{at + "go.mod", mod},
		{at + "main.go", "// Command berthtest says that it works.\npackage main\n\nfunc main() { println(\"" + works + "\") }\n"},
	})
	if err != nil {
		return nil, err
	}
	dir := "goproxy.test/" + Module + "/@v/"
	p[dir+"list"] = []byte("v1.0.0\n")
	p[dir+"v1.0.0.info"] = []byte(`{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`)
	p[dir+"v1.0.0.mod"] = []byte(mod)
	p[dir+"v1.0.0.zip"] = module
	return p, nil
}

func zipped(files [][2]string) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.Create(f[0])
		if err != nil {
			return nil, err
		}
		if _, err := w.Write([]byte(f[1])); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
}
