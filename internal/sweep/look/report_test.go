package look

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"berth/internal/sweep/journal"
)

// page is a report's page, whose pictures are well-formed.
func page(t *testing.T, l *Look, metric string) string {
	t.Helper()
	r, err := l.Report(metric, epoch)
	must(t, err)
	var b strings.Builder
	must(t, r.Write(&b))
	for part := range strings.SplitSeq(b.String(), "<svg") {
		svg, _, ok := strings.Cut(part, "</svg>")
		if !ok {
			continue
		}
		d := xml.NewDecoder(strings.NewReader("<svg" + svg + "</svg>"))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v in %.300s", err, svg)
			}
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("a place that is no number: %.300s", svg)
		}
	}
	return b.String()
}

// Everything that a task or a definition says is text on the page, which loads nothing.
func TestReport(t *testing.T) {
	const evil = `"><script>alert(1)</script>`
	var all []did
	for n := range 60 {
		d := did{params: map[string]string{"lr": fmt.Sprintf("1e-%d", n%5), "model": []string{"small", evil}[n%2], "same": "x"}, state: journal.OK,
			took: time.Duration(n+1) * time.Second, metrics: fmt.Sprintf("loss=%d\nname=%s\n", n*n, evil)}
		if n%10 == 3 {
			d.state, d.code, d.stderr = journal.Failed, 1, "javascript:"+evil
		}
		all = append(all, d)
	}
	all = append(all, did{params: map[string]string{"lr": "NaN"}})
	text := page(t, ran(t, all...), "")
	if strings.Contains(text, "<script") || strings.Contains(text, "http://") || strings.Contains(text, "https://") || strings.Contains(text, "ZgotmplZ") {
		t.Error("something else than text on the page")
	}
	for _, want := range []string{"60 of 61 have a result", "&lt;script&gt;", "loss against each parameter", "<h3>lr</h3>", "<h3>model</h3>", "All parameters together", "default-src 'none'",
		"prefers-color-scheme: dark", "<td>6</td><td>task</td><td>failed</td>"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not there", want)
		}
	}
	if strings.Contains(text, "<h3>same</h3>") || strings.Count(text, "<circle") != 120 {
		t.Errorf("%d points", strings.Count(text, "<circle"))
	}
	if text := page(t, ran(t, all...), "seconds"); !strings.Contains(text, "seconds against each parameter") {
		t.Error("no seconds")
	}
}

// One task, none that has ended, and more than are drawn.
func TestReportSizes(t *testing.T) {
	page(t, ran(t, did{}), "")
	page(t, ran(t, did{state: journal.OK, params: map[string]string{"a": "1"}}), "")
	var all []did
	for n := range mostDots*2 + 2 {
		all = append(all, did{params: map[string]string{"a": fmt.Sprint(n), "b": fmt.Sprint(n % 3)}, state: journal.OK, took: time.Millisecond})
	}
	text := page(t, ran(t, all...), "")
	if n := strings.Count(text, "<circle"); n != 2*mostDots || !strings.Contains(text, "spread over all") {
		t.Errorf("%d points", n)
	}
}
