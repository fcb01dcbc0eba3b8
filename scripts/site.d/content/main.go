// Content writes what hugo builds the site from, into a directory: content/, the pages of
// docs/ with their titles and files in front of them, and data/, the tables of
// docs/README.md as navigation, and which page a file of the repository is; static/, the
// pictures. The README is the first page.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"berth/docs"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: content DIRECTORY, from the top of the repository")
		os.Exit(2)
	}
	if err := stage(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "content:", err)
		os.Exit(1)
	}
}

// entry is a page in the navigation.
type entry struct {
	File  string `json:"file"` // from the top of the repository
	To    string `json:"to"`   // from the top of the site
	Title string `json:"title"`
}

type group struct {
	Need  string  `json:"need"`
	Pages []entry `json:"pages"`
}

func stage(dir string) error {
	files := map[string]entry{}
	var groups []group
	add := func(need, file, name string) error {
		e := entry{File: file, To: name + ".html"}
		content := filepath.Join(dir, "content", filepath.FromSlash(name)+".md")
		if name == "index" {
			content = filepath.Join(dir, "content", "_index.md")
		}
		var err error
		if e.Title, err = page(file, content); err != nil {
			return err
		}
		if len(groups) == 0 || groups[len(groups)-1].Need != need {
			groups = append(groups, group{Need: need})
		}
		last := &groups[len(groups)-1]
		last.Pages = append(last.Pages, e)
		files[file] = e
		return nil
	}
	const first = "berth"
	if err := add(first, "README.md", "index"); err != nil {
		return err
	}
	if err := add(first, "docs/README.md", "topics"); err != nil {
		return err
	}
	for _, p := range docs.Pages() {
		if err := add(p.Need, "docs/"+p.File, p.Name); err != nil {
			return err
		}
	}
	if err := pictures(dir); err != nil {
		return err
	}
	search := "+++\ntitle = \"Search\"\nlayout = \"search\"\n+++\n"
	if err := os.WriteFile(filepath.Join(dir, "content", "search.md"), []byte(search), 0o600); err != nil {
		return err
	}
	if err := data(dir, "pages", groups); err != nil {
		return err
	}
	return data(dir, "files", files)
}

// page writes a page of Markdown without its first heading, which is the title.
func page(file, to string) (title string, err error) {
	text, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		return "", err
	}
	head, body, _ := strings.Cut(string(text), "\n")
	title, ok := strings.CutPrefix(head, "# ")
	if !ok {
		return "", fmt.Errorf("%s does not begin with a heading", file)
	}
	title = strings.ReplaceAll(title, "`", "")
	front, err := json.MarshalIndent(map[string]string{"title": title, "file": file, "layout": "single"}, "", " ")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return "", err
	}
	return title, os.WriteFile(to, []byte(string(front)+"\n\n"+body), 0o600)
}

// pictures copies those of docs/, which stand beside its pages.
func pictures(dir string) error {
	files, err := filepath.Glob("docs/*.svg")
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "static", filepath.Base(file)), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func data(dir, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "data", name+".json"), text, 0o600)
}
