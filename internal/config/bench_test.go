package config

import "testing"

// BenchmarkLoad is what every command pays: the search for a project's file,
// both files, the variables.
func BenchmarkLoad(b *testing.B) {
	w := newWorld(b)
	w.write(b, w.user, "[terminal]\ntimeout = \"10m\"\ncontainer_memory = \"8GiB\"\n"+twoTargets)
	w.write(b, w.proj, "[terminal]\ndocker_image = \"debian:12\"\n")
	w.src.Environ = []string{"PATH=/bin", "TERMINAL_TIMEOUT=5", "HOME=/x"}
	for b.Loop() {
		if _, err := Load(w.src); err != nil {
			b.Fatal(err)
		}
	}
}
