package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

func TestAllows(t *testing.T) {
	dir := t.TempDir()
	id := func(n int) string { return fmt.Sprintf("01890000-0000-7000-8000-%012d", n) }
	act := func(n int, words ...string) jobs.NetworkAddition {
		return jobs.NetworkAddition{Version: 1, ID: id(n), Time: time.Unix(int64(n), 0).UTC(), By: "ada", Host: "login", Words: words}
	}
	if got, err := Allows(dir, nil); err != nil || len(got) > 0 {
		t.Error(got, err)
	}
	for _, n := range []int{2, 1, 1} {
		if err := AddAllow(dir, act(n, "a.example")); err != nil {
			t.Fatal(err)
		}
	}
	for name, bad := range map[string]jobs.NetworkAddition{
		"no words": act(3), "a control character": act(3, "a\nb"), "a long word": act(3, strings.Repeat("x", 2000)),
		"many words": act(3, make([]string, jobs.MostAllowWords+1)...), "no id": {Version: 1, ID: "../x", Words: []string{"a"}},
	} {
		if err := AddAllow(dir, bad); err == nil {
			t.Errorf("%s was recorded", name)
		}
	}
	// What another program has put there is said, and the rest is read.
	for name, text := range map[string]string{id(4) + ".json": "{}", id(5) + ".json": `{"version":9}`, "x.json": "{}", ".new-1": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, dirAllow, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Allows(dir, map[string]bool{id(1): true})
	if len(got) != 1 || got[0].ID != id(2) || got[0].By != "ada" || err == nil || !strings.Contains(err.Error(), id(4)) || !strings.Contains(err.Error(), "newer") {
		t.Errorf("%+v %v", got, err)
	}
	if fi, err := os.Stat(filepath.Join(dir, AllowName(id(2)))); err != nil || fi.Mode().Perm() != 0o600 {
		t.Error(fi, err)
	}
	if fi, err := os.Stat(filepath.Join(dir, dirAllow)); err != nil || fi.Mode().Perm() != 0o700 {
		t.Error(fi, err)
	}
	for _, name := range []string{"network-allow/../x.json", "network-allow/x.json", "network-allow/" + id(1), id(1) + ".json", "network-allow/a/" + id(1) + ".json"} {
		if IsAllowName(name) {
			t.Error(name)
		}
	}
}
