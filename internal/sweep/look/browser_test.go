package look

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/sweep/journal"
	"berth/test/browser"
)

// hostile are texts of tasks that would be more than text where a page is not careful.
var hostile = []string{`</script><img src=x onerror="top.ran=1">`, `"><svg onload="top.ran=1">`, `</title></style><script>top.ran=1</script>`}

// A report is fit to be seen, in a browser: few tasks and many, values of all sizes, names that are
// long or hostile. Without its policy for scripts it is as harmless.
func TestReportInBrowser(t *testing.T) {
	words := func(n int) string { return strings.Repeat("extraordinarily-long-", n) }
	every := func(n int, do func(int) did) (all []did) {
		for i := range n {
			all = append(all, do(i))
		}
		return all
	}
	reports := map[string]struct {
		all    []did
		metric string
		text   []string
	}{
		"nothing": {all: []did{{}}, text: []string{"0 of 1 have a result", "No task has failed."}},
		"one":     {all: []did{{state: journal.OK, params: map[string]string{"a": "1"}, took: time.Second}}, text: []string{"1 of 1 have a result"}},
		"usual": {all: every(60, func(n int) did {
			d := did{state: journal.OK, took: time.Duration(n%7+1) * 37 * time.Second, metrics: fmt.Sprintf("accuracy=0.%d\n", 500+n*7),
				params: map[string]string{"lr": []string{"0.1", "0.03", "0.01", "1e-3", "1e-5"}[n%5], "model": []string{"small", "base", "large"}[n%3], "seed": fmt.Sprint(n)}}
			switch n % 10 {
			case 3:
				d.state, d.code, d.stderr = journal.Failed, 1, "ValueError: loss is nan at step 1020"
			case 7:
				d.state, d.stderr = journal.OverMemory, "Killed"
			case 9:
				d.state = journal.TimedOut
			}
			return d
		}), text: []string{"accuracy against each parameter", "ValueError: loss is nan at step 1020"}},
		"hostile": {all: every(30, func(n int) did {
			return did{state: []journal.State{journal.OK, journal.Failed}[n%2], code: uint8(n % 3), stderr: hostile[n%3] + words(9),
				metrics: fmt.Sprintf("%s=%d\nloss=%d\n", words(4), n, n), params: map[string]string{"x": hostile[n%3], words(4): fmt.Sprint(n * 1000003), "漢字": strings.Repeat("漢字", n%4+1),
					"wide": strings.Repeat("W", n%20+1), "m": fmt.Sprint(n), "n": fmt.Sprint(-n), "o": fmt.Sprint(n % 2), "p": fmt.Sprint(n % 5)}}
		}), metric: words(4), text: hostile},
		"sizes": {all: every(40, func(n int) did {
			return did{state: journal.OK, took: time.Duration(n*n*n) * time.Minute, metrics: fmt.Sprintf("m=%ge%d\n", 1.2345678, n*15-300),
				params: map[string]string{"tiny": fmt.Sprintf("%de-300", n), "near": fmt.Sprint(1e9 + float64(n)/1e3), "log": fmt.Sprintf("1e%d", n-20), "both": fmt.Sprintf("%de305", n*80-1600)}}
		}), metric: "m", text: []string{"m against each parameter"}},
	}
	var pages []browser.Page
	for name, r := range reports {
		text := page(t, ran(t, r.all...), r.metric)
		if dir := os.Getenv("BERTH_PAGES"); dir != "" { // to be looked at
			must(t, os.WriteFile(filepath.Join(dir, name+".html"), []byte(text), 0o600))
		}
		const policy = "<meta http-equiv=\"Content-Security-Policy\""
		if !strings.Contains(text, policy) {
			t.Error("no policy for scripts")
		}
		pages = append(pages, browser.Page{Name: name, HTML: text, Text: r.text},
			browser.Page{Name: name + " without its policy", HTML: strings.Replace(text, policy, "<meta name=\"none\"", 1), Text: r.text})
	}
	if !browser.Installed() {
		t.Skip("no chromium")
	}
	faults, err := browser.Faults(t.TempDir(), pages...)
	must(t, err)
	for _, f := range faults {
		t.Error(f)
	}
}
