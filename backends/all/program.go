package all

import (
	"os"
	"sync"

	"berth/backends/external"
	"berth/jobs"
)

// Program returns the function that gives the backend which is a program of a
// name, the same for the same name, and nil for a word that can name none.
// home is the state directory, and owner names it at services; keys returns variables for the
// programs beside those of this process, options what the configuration has for the one of a
// name, builtin its command line where none is installed: nil is none.
func Program(
	on jobs.Starter,
	home string,
	owner func() (string, error),
	keys func() []string,
	options func(name string) map[string]string,
	builtin func(name string) []string,
) func(name string) *external.Backend {
	var mu sync.Mutex
	environ := os.Environ
	if keys != nil {
		environ = func() []string { return append(os.Environ(), keys()...) }
	}
	have := map[string]*external.Backend{}
	return func(name string) *external.Backend {
		if !jobs.IsProgram(name) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if have[name] == nil {
			b := &external.Backend{Word: name, On: on, Home: home, Owner: owner, Environ: environ}
			if builtin != nil {
				b.Builtin = builtin(name)
			}
			if options != nil {
				b.Options = func() map[string]string { return options(name) }
			}
			have[name] = b
		}
		return have[name]
	}
}
