// Pages prints what scripts/build compresses and package docs unpacks: the user pages,
// as an object of JSON by their files.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"berth/docs"
)

func main() {
	if err := pages(); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func pages() error {
	all := map[string]string{}
	for _, p := range docs.Pages() {
		if !p.User() {
			continue
		}
		text, err := p.Text()
		if err != nil {
			return err
		}
		all[p.File] = text
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}
