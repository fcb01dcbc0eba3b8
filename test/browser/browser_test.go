package browser_test

import (
	"slices"
	"strings"
	"testing"

	"berth/test/browser"
)

// What is looked for is found: each fault on a page that has it.
func TestFaults(t *testing.T) {
	page := func(name, body string) browser.Page {
		return browser.Page{Name: name, HTML: "<!doctype html><style>body { margin: 0; color: #111; background: #fff }</style><body>" + body, Text: []string{"<b>"}}
	}
	all := map[string]struct{ body, fault string }{
		"fine":     {"<p>&lt;b&gt;</p>", ""},
		"parsed":   {"<b></b>", "no text <b>"},
		"wide":     {"&lt;b&gt;<div style='width: 2000px'>x</div>", "2000 pixels wide"},
		"script":   {"&lt;b&gt;<script>top.ran = true</script>", "a script"},
		"handler":  {"&lt;b&gt;<p onclick='x()'>x</p>", "an attribute onclick"},
		"loaded":   {"&lt;b&gt;<style>p { background: url(http://none.invalid/n.png) }</style><p>x</p>", "requested http://none.invalid/n.png"},
		"pale":     {"&lt;b&gt;<p style='color: #999'>x</p>", "contrast 2.8"},
		"cut":      {"&lt;b&gt;<svg viewBox='0 0 100 50' style='width: 200px'><text x='90' y='20' font-size='11'>a label</text></svg>", "a label outside of its picture"},
		"over":     {"&lt;b&gt;<svg viewBox='0 0 300 50' style='width: 300px'><text x='9' y='20'>one</text><text x='20' y='20'>two</text></svg>", `a label over "two"`},
		"small":    {"&lt;b&gt;<svg viewBox='0 0 900 50' style='width: 300px'><text x='9' y='20' font-size='11'>one</text></svg>", "text of 3.7 pixels"},
		"clipped":  {"&lt;b&gt;<div style='width: 50px; overflow: hidden; white-space: nowrap'>much more than there is room for</div>", "its text is"},
		"anything": {"&lt;b&gt;<img alt='x'>", "an element"},
	}
	var pages []browser.Page
	for name, p := range all {
		pages = append(pages, page(name, p.body))
	}
	if !browser.Installed() {
		t.Skip("no chromium")
	}
	faults, err := browser.Faults(t.TempDir(), pages...)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(faults, "light: a script of a page has run") {
		t.Error("the script has not run, or that is not seen")
	}
	for name, p := range all {
		var of []string
		for _, f := range faults {
			if strings.Contains(f, ": "+name+" at ") {
				of = append(of, f)
			}
		}
		text := strings.Join(of, "\n")
		if p.fault == "" && text != "" {
			t.Errorf("%s: %s", name, text)
		}
		for _, at := range []string{"light: " + name + " at 360", "dark: " + name + " at 768"} {
			if p.fault != "" && !(strings.Contains(text, at) && strings.Contains(text, p.fault)) {
				t.Errorf("%s: %q is not found: %s", at, p.fault, text)
			}
		}
	}
}
