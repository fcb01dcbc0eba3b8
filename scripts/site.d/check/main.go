// Check looks at the pages of a site: each has a title, each link and anchor within the
// site leads somewhere, and nothing that a browser fetches by itself is on another host or
// bound to one place of a server.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/net/html"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: check DIRECTORY")
		os.Exit(2)
	}
	s, err := read(os.DirFS(os.Args[1]))
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
	s.check()
	for _, f := range s.faults {
		fmt.Fprintln(os.Stderr, f)
	}
	if len(s.faults) > 0 {
		fmt.Fprintf(os.Stderr, "check: %d faults\n", len(s.faults))
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "check: %d pages, %d links: each leads somewhere\n", len(s.pages), s.links)
}

// page is what one file of HTML has.
type page struct {
	title string
	ids   map[string]bool
	refs  []ref
}

// ref is an address in a page.
type ref struct {
	to      string
	fetched bool // by the browser itself, not by a person who follows a link
}

type site struct {
	files  fs.FS
	pages  map[string]*page
	links  int
	faults []string
}

var (
	urlOfCSS    = regexp.MustCompile(`(?:url\(|@import)\s*["']?([^"')\s;]+)`)
	otherHost   = regexp.MustCompile(`^(?:[a-z]+:)?//`)
	otherScheme = regexp.MustCompile(`^(?:data|mailto):`)
)

func read(files fs.FS) (*site, error) {
	s := &site{files: files, pages: map[string]*page{}}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		switch filepath.Ext(name) {
		case ".html":
			root, err := html.Parse(strings.NewReader(string(text)))
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			p := &page{ids: map[string]bool{}}
			s.pages[name] = p
			s.node(name, p, root)
		case ".css":
			for _, m := range urlOfCSS.FindAllStringSubmatch(string(text), -1) {
				s.resolve(name, ref{m[1], true})
			}
		}
		return nil
	})
	if err == nil && len(s.pages) == 0 {
		err = fmt.Errorf("there is no page")
	}
	return s, err
}

func (s *site) fault(name, format string, args ...any) {
	s.faults = append(s.faults, name+": "+fmt.Sprintf(format, args...))
}

// node notes what an element and those in it have.
func (s *site) node(name string, p *page, n *html.Node) {
	if n.Type == html.ElementNode {
		if n.Data == "title" && n.FirstChild != nil && p.title == "" {
			p.title = strings.TrimSpace(n.FirstChild.Data)
		}
		for _, a := range n.Attr {
			switch a.Key {
			case "id":
				if p.ids[a.Val] {
					s.fault(name, "two elements have the id %q", a.Val)
				}
				p.ids[a.Val] = true
			case "href":
				p.refs = append(p.refs, ref{a.Val, n.Data != "a"})
			case "src", "data", "poster", "action", "bundle-path":
				p.refs = append(p.refs, ref{a.Val, true})
			case "srcset":
				s.fault(name, "srcset is not looked at")
			case "style":
				for _, m := range urlOfCSS.FindAllStringSubmatch(a.Val, -1) {
					p.refs = append(p.refs, ref{m[1], true})
				}
			}
		}
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		s.node(name, p, c)
	}
}

func (s *site) check() {
	for name, p := range s.pages {
		if p.title == "" {
			s.fault(name, "has no title")
		}
		for _, r := range p.refs {
			s.resolve(name, r)
		}
	}
}

// resolve notes what is wrong with an address in a file.
func (s *site) resolve(name string, r ref) {
	s.links++
	file, anchor, _ := strings.Cut(r.to, "#")
	file, _, _ = strings.Cut(file, "?")
	to := path.Join(path.Dir(name), file)
	switch {
	case otherScheme.MatchString(r.to):
	case otherHost.MatchString(r.to):
		if r.fetched {
			s.fault(name, "%s is fetched from another host", r.to)
		}
	case strings.HasPrefix(file, "/"):
		s.fault(name, "%s works at the top of a server only", r.to)
	case file == "":
		if !s.pages[name].has(anchor) {
			s.fault(name, "#%s: there is no such anchor", anchor)
		}
	default:
		if _, err := fs.Stat(s.files, to); err != nil {
			s.fault(name, "%s: there is no such file", r.to)
		} else if anchor != "" && !s.pages[to].has(anchor) {
			s.fault(name, "%s: there is no such anchor", r.to)
		}
	}
}

func (p *page) has(anchor string) bool {
	return p != nil && (anchor == "" || p.ids[anchor])
}
