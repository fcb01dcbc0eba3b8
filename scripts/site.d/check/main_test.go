package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

// Each kind of fault is seen, and what is right is none.
func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		`<h1 id="a">A</h1><a href="#a">a</a><a href="b/c.html#d">d</a><a href="https://host.example/">e</a><img src="data:,">`: "",
		`<a href="missing.html">`:                             "there is no such file",
		`<a href="b/c.html#missing">`:                         "there is no such anchor",
		`<a href="#missing">`:                                 "there is no such anchor",
		`<a href="/b/c.html">`:                                "the top of a server",
		`<a href="../index.html">`:                            "there is no such file",
		`<a href="b/c.md">`:                                   "there is no such file",
		`<link rel=stylesheet href="https://host.example/">`:  "another host",
		`<script src="//host.example/a.js"></script>`:         "another host",
		`<p style="background: url('http://host.example/')">`: "another host",
		`<p id=a></p><p id=a></p>`:                            "two elements",
	} {
		s, err := read(fstest.MapFS{
			"index.html": {Data: []byte("<title>t</title>" + text)},
			"b/c.html":   {Data: []byte(`<title>c</title><p id="d"><a href="../index.html">up</a>`)},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.check()
		if got := strings.Join(s.faults, "\n"); (want == "") != (got == "") || !strings.Contains(got, want) || len(s.faults) > 1 {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	s, err := read(fstest.MapFS{"a.html": {Data: []byte("<p>")}, "a.css": {Data: []byte("@import 'https://host.example/a.css'; p { background: url(b.png) }")}})
	if err != nil {
		t.Fatal(err)
	}
	if s.check(); len(s.faults) != 3 {
		t.Errorf("want a page without a title, another host and a missing file: %q", s.faults)
	}
	if _, err := read(fstest.MapFS{}); err == nil {
		t.Error("no page at all is right")
	}
}
