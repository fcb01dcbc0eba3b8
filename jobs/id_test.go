package jobs_test

import (
	"regexp"
	"strings"
	"testing"

	"berth/internal/sys/ids"
	"berth/jobs"
)

func newID(t testing.TB) string {
	t.Helper()
	id, err := ids.New()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Ids made within one tick of the clock share their beginning; what people and
// schedulers see of them must not be shared.
func TestIDs(t *testing.T) {
	const many = 10_000
	short, names := map[string]bool{}, map[string]bool{}
	for range many {
		id := newID(t)
		if !jobs.ValidID(id) {
			t.Fatalf("%s is not valid", id)
		}
		if s := jobs.Short(id); len(s) != 8 || !strings.HasSuffix(id, s) {
			t.Fatalf("%s is shown as %s", id, s)
		}
		short[jobs.Short(id)] = true
		names[jobs.JobName("fix", id)] = true
	}
	if len(names) != many {
		t.Errorf("%d jobs have %d names", many, len(names))
	}
	if len(short) < many-2 { // of 2^32
		t.Errorf("%d jobs have %d short ids", many, len(short))
	}
}

func TestValidID(t *testing.T) {
	good := newID(t)
	for id, want := range map[string]bool{
		good: true, strings.ToUpper(good): false, good[:35]: false, good + "0": false, "": false,
		strings.ReplaceAll(good, "-", "0"): false, "{" + good[1:35] + "}": false, "../" + good[3:]: false,
		"00000000-0000-7000-8000-000000000000": true,
	} {
		if jobs.ValidID(id) != want {
			t.Errorf("ValidID(%q) = %t", id, !want)
		}
	}
}

func TestMatchID(t *testing.T) {
	const id = "01932d4e-5f60-7abc-8def-0123456789ab"
	for word, want := range map[string]bool{
		id: true, "0": true, "01932d4e": true, "456789ab": true, "456789AB": true, strings.ToUpper(id): true,
		"b": true, "": false, "c": false, "7abc": false, "89ab ": false, id + "0": false,
	} {
		if jobs.MatchID(id, word) != want {
			t.Errorf("MatchID(%q) = %t", word, !want)
		}
	}
}

func TestSlug(t *testing.T) {
	for in, want := range map[string]string{
		"Fix the parser": "fix-the-parser", "  --a__b--  ": "a-b", "": "task", "🙂": "task", "Übung 3": "bung-3", "../../etc": "etc",
		"a\nb": "a-b", "x.lock": "x-lock", "-": "task", "A": "a",
		strings.Repeat("a", 50):               strings.Repeat("a", 40),
		strings.Repeat("a", 39) + " bcd":      strings.Repeat("a", 39), // no dash at the end, and not 41
		strings.Repeat("a", 38) + " bcd":      strings.Repeat("a", 38) + "-b",
		strings.Repeat("ab ", 20):             strings.Repeat("ab-", 13) + "a",
		strings.Repeat("?", 100) + "last one": "last-one",
	} {
		if got := jobs.Slug(in); got != want {
			t.Errorf("Slug(%q) = %q, want %q", in, got, want)
		}
	}
}

var slugForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

func FuzzSlug(f *testing.F) {
	for _, s := range []string{"", "Fix the parser", "\x00\xff", strings.Repeat("a", 39) + "-b", "K ſ İ", "a--b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := jobs.Slug(s)
		if !slugForm.MatchString(got) || len(got) > 40 || strings.Contains(got, "--") {
			t.Errorf("Slug(%q) = %q", s, got)
		}
		if again := jobs.Slug(got); again != got {
			t.Errorf("Slug(%q) = %q", got, again)
		}
	})
}

func TestNames(t *testing.T) {
	const id = "01932d4e-5f60-7abc-8def-0123456789ab"
	if got := jobs.JobName("fix", id); got != "berth-fix-0123456789ab" {
		t.Error(got)
	}
	if got := jobs.BranchName("fix", id); got != "berth/fix/456789ab" {
		t.Error(got)
	}
	if got := jobs.Short("abc"); got != "abc" {
		t.Error(got)
	}
	if got := jobs.JobName("fix", "abc"); got != "berth-fix-abc" {
		t.Error(got)
	}
}
