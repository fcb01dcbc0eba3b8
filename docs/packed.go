//go:build embednode

package docs

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// packed is made by scripts/build, with scripts/build.d/pages: the user pages by their
// files, a third of a MiB, in a third of that.
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
	data, err := z.DecodeAll(packed, nil)
	if err != nil {
		return "", err
	}
	var pages map[string]string
	if err := json.Unmarshal(data, &pages); err != nil {
		return "", err
	}
	text, ok := pages[p.File]
	if !ok {
		return "", fmt.Errorf("this program was built without the page %s", p.Name)
	}
	return text, nil
}
