//go:build !embednode

package docs

import "embed"

//go:embed *.md */*.md
var files embed.FS

// Text is the Markdown of a user page.
func (p Page) Text() (string, error) {
	text, err := files.ReadFile(p.File)
	return string(text), err
}
