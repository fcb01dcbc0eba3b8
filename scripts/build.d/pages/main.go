// Pages prints what scripts/build compresses and package docs unpacks: of each user page
// its file, a zero byte, its text and a zero byte. JSON takes longer to read than to
// unpack.
package main

import (
	"fmt"
	"os"
	"strings"

	"berth/docs"
)

func main() {
	if err := pages(); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func pages() error {
	for _, p := range docs.Pages() {
		if !p.User() {
			continue
		}
		text, err := p.Text()
		if err != nil {
			return err
		}
		if strings.Contains(text, "\x00") {
			return fmt.Errorf("docs/%s has a zero byte", p.File)
		}
		if _, err := fmt.Print(p.File, "\x00", text, "\x00"); err != nil {
			return err
		}
	}
	return nil
}
