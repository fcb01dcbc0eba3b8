//go:build embednode

package docs

import (
	_ "embed"
	"fmt"
	"strings"

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
	file, text, rest := "", "", string(data)
	for rest != "" {
		file, rest, _ = strings.Cut(rest, "\x00")
		text, rest, _ = strings.Cut(rest, "\x00")
		if file == p.File {
			return text, nil
		}
	}
	return "", fmt.Errorf("this program was built without the page %s", p.Name)
}
