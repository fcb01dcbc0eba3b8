package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Widths are those of the pages, in CSS pixels.
var Widths = []int{360, 768, 1280}

//go:embed measure.html
var measureHTML string

// Page is one that is looked at, with texts that are to be on it as they stand here.
type Page struct {
	Name string
	HTML string
	Text []string
}

var errNone = errors.New("no chromium-headless-shell or chromium on PATH (Debian packages)")

// program is the browser's.
func program() (string, error) {
	for _, name := range []string{"chromium-headless-shell", "chromium"} {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", errNone
}

// Installed tells whether there is one.
func Installed() bool {
	_, err := program()
	return err == nil
}

// Faults is what is wrong with pages, a line each. dir is an empty directory.
func Faults(dir string, pages ...Page) (faults []string, err error) {
	browser, err := program()
	if err != nil {
		return nil, err
	}
	sheet := measureHTML
	for i, p := range pages {
		file := fmt.Sprintf("page%d.html", i)
		if err := os.WriteFile(filepath.Join(dir, file), []byte(p.HTML), 0o600); err != nil {
			return nil, err
		}
		text, err := json.Marshal(p.Text)
		if err != nil {
			return nil, err
		}
		for _, w := range Widths {
			sheet += fmt.Sprintf("<iframe width=\"%d\" height=\"900\" data-page=\"%s\" data-hostile=\"%s\" src=\"%s\"></iframe>\n",
				w, html.EscapeString(p.Name), html.EscapeString(string(text)), file)
		}
	}
	at := filepath.Join(dir, "measure.html")
	if err := os.WriteFile(at, []byte(sheet), 0o600); err != nil {
		return nil, err
	}
	for _, scheme := range []string{"light", "dark"} {
		more, err := measure(browser, dir, at, scheme)
		if err != nil {
			return nil, err
		}
		for _, f := range more {
			faults = append(faults, scheme+": "+f)
		}
	}
	return faults, nil
}

// measure has the browser load the sheet, in one of the colour schemes.
func measure(browser, dir, sheet, scheme string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	// No name is resolved. The sheet looks into its frames, which are files beside it.
	args := []string{"--headless", "--disable-gpu", "--hide-scrollbars", "--user-data-dir=" + filepath.Join(dir, "profile"),
		"--host-resolver-rules=MAP * ~NOTFOUND", "--allow-file-access-from-files", "--dump-dom",
		fmt.Sprintf("--blink-settings=preferredColorScheme=%d", map[string]int{"dark": 0, "light": 1}[scheme])}
	if os.Getuid() == 0 {
		args = append(args, "--no-sandbox") // the browser's own does not work for root
	}
	c := exec.CommandContext(ctx, browser, append(args, (&url.URL{Scheme: "file", Path: sheet, Fragment: scheme}).String())...)
	var out, log strings.Builder
	c.Stdout, c.Stderr = &out, &log
	c.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its other processes end with it
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 10 * time.Second
	err := c.Run()
	_, text, found := strings.Cut(out.String(), "MEASURED ")
	text, _, whole := strings.Cut(text, " END")
	if err != nil || !found || !whole {
		return nil, fmt.Errorf("%s: %w\n%.2000s\n%.2000s", browser, errors.Join(errors.New("nothing was measured"), err), out.String(), log.String())
	}
	if text, err = url.PathUnescape(text); err != nil {
		return nil, err
	}
	var faults []string
	return faults, json.Unmarshal([]byte(text), &faults)
}
