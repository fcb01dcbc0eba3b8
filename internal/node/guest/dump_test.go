package guest

import (
	"slices"
	"strings"
	"testing"
)

func TestEntries(t *testing.T) {
	listing := "declare -- a=\"x\ndeclare -- b=\\\"1\\\"\"\n" +
		"declare -x c=$'it\\'s\\ndeclare -- d=\"1\"'\n" +
		"declare -a e=([0]=\"a\nb\" [1]=$'c\\n')\n" +
		"declare -A f=([\"k\nk\"]=\"v\" )\n" +
		"declare -x g\n" +
		"declare -ar BASH_VERSINFO=([0]=\"5\")\n"
	var names []string
	for _, e := range entries(listing, "declare -") {
		names = append(names, declared(e))
	}
	if want := []string{"a", "c", "e", "f", "g", "BASH_VERSINFO"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	kept := variables(listing, "declare -", map[string]bool{"c": true})
	if strings.Contains(kept, "BASH_VERSINFO") || strings.Contains(kept, "it\\'s") || !strings.Contains(kept, "declare -x g\n") {
		t.Errorf("kept %q", kept)
	}
	names = nil
	for _, e := range entries("a='it'\"'\"'s\nb=1'\nc=''\n", "") {
		names = append(names, declared(e))
	}
	if want := []string{"a", "c"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

func TestTrapNames(t *testing.T) {
	d := &dump{traps: "trap -- 'echo \"x\ntrap -- y INT' SIGTERM\ntrap -- '' SIGHUP\ntrap -- '__berth_s=exit; x' EXIT\n"}
	if names, exit := d.trapNames(); names != "SIGTERM SIGHUP" || exit {
		t.Errorf("%q %v", names, exit)
	}
	d.traps = "trap -- 'echo it'\\''s' EXIT\n"
	if names, exit := d.trapNames(); names != "EXIT" || !exit {
		t.Errorf("%q %v", names, exit)
	}
}

// FuzzDump: whatever a task writes in a shell's place, nothing of it is taken
// for more than text, and no name of the guest's own comes back.
func FuzzDump(f *testing.F) {
	parts := []string{"0 hB", "/tmp\n", "trap -- 'x' EXIT\n", "0022\n", "shopt -u autocd\n", "declare -x A=\"1\"\ndeclare -- b=$'\\n'\n", "f () \n{ \n    :\n}\n", "alias g='h'\n", "set +o errexit\n", "end", ""}
	f.Add([]byte(strings.Join(parts, "\x00")))
	f.Add([]byte(strings.Repeat("\x00", 10)))
	f.Add([]byte("exit\x00/\x00trap -- '\x00\x00\x00declare -x BERTH_COMMAND=\"\n\\\x00\x00\x00\x00end\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := splitDump(b)
		if err != nil {
			return
		}
		if !strings.HasPrefix(d.dir, "/") {
			t.Errorf("directory %q", d.dir)
		}
		names, _ := d.trapNames()
		for n := range strings.FieldsSeq(names) {
			if !isName(n) {
				t.Errorf("trap %q", n)
			}
		}
		for _, l := range []*dialect{&bashDialect, &shDialect} {
			c := *d
			c.merge(d, l, map[string]bool{"A": true})
			text := c.restore(l, false)
			if strings.ContainsRune(text, 0) {
				t.Error("a NUL in a text")
			}
			for _, e := range entries(variables(c.vars, "", nil), "") {
				if own(declared(e)) {
					t.Errorf("kept %q", e)
				}
			}
		}
	})
}
