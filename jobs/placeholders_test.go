package jobs

import (
	"slices"
	"testing"
)

func TestHolesFill(t *testing.T) {
	h := Placeholders{PlaceholderImage: "/i.sif", PlaceholderScratch: "/s", PlaceholderEmpty: "/s/empty", PlaceholderWork: `/a "b",c`}
	word := func(m Mount) string {
		w, err := m.Word()
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	argv := []string{"run", PlaceholderScratch, "--mount", word(Mount{Source: PlaceholderEmpty, Destination: "/a"}), PlaceholderImage,
		// A path of the user's that only looks like one stays what it is.
		word(Mount{Source: "/x/{empty}", Destination: "/b"}), word(Mount{Source: "/{empty},{empty}", Destination: "/c"}), "{empty},",
		word(Mount{Source: PlaceholderWork, Destination: "/d", Writable: true})}
	want := slices.Clone(argv)
	want[1], want[3], want[4] = "/s", "type=bind,source=/s/empty,destination=/a,readonly", "/i.sif"
	want[len(want)-1] = word(Mount{Source: `/a "b",c`, Destination: "/d", Writable: true})
	if got := h.Fill(argv); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	h[PlaceholderKeys] = ""
	argv = []string{"run", "--mount", word(Mount{Source: PlaceholderKeys, Destination: "/proc/keys"}), "--mount", word(Mount{Source: PlaceholderCgroups, Destination: "/c"})}
	if got, want := h.Fill(argv), []string{"run", "--mount", argv[4]}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, source := range []string{"{other}", "{node}x", "{empty}/x", "empty"} {
		if _, err := (Mount{Source: source, Destination: "/a"}).Word(); err == nil {
			t.Errorf("the source %q was taken", source)
		}
	}
	if _, err := (Mount{Source: "/a", Destination: PlaceholderEmpty}).Word(); err == nil {
		t.Error("a destination is no placeholder")
	}
}
