//go:build embednode

package docs

import (
	"bytes"
	_ "embed"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// packed is made by scripts/build, with scripts/build.d/pages: the user pages, half a
// MiB, in a third of that. Unpacked, each page is its file, a zero byte, its text and a
// zero byte.
//
//go:embed pages.zst
var packed []byte

// Text is the Markdown of a user page. All of them are unpacked, in some milliseconds.
func (p Page) Text() (string, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return "", err
	}
	defer z.Close()
	data, err := z.DecodeAll(packed, make([]byte, 0, 4*len(packed))) // text becomes a quarter at best
	if err != nil {
		return "", err
	}
	for rest := data; len(rest) > 0; {
		var file, text []byte
		file, rest, _ = bytes.Cut(rest, []byte{0})
		text, rest, _ = bytes.Cut(rest, []byte{0})
		if string(file) == p.File {
			return string(text), nil
		}
	}
	return "", fmt.Errorf("this program was built without the page %s", p.Name)
}
