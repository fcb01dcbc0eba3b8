// Package fetch assembles the cache of images: registries fill it, and the container
// program of this machine. It speaks HTTP, which the program for the nodes does not.
package fetch

import (
	"berth/apptainer"
	"berth/internal/images"
	"berth/internal/images/registry"
	"berth/jobs"
)

// Options say whom the cache serves.
type Options struct {
	Progress func(string)       // what takes long, for people; may be nil
	Meter    func(images.Meter) // how far a fetch is; may be nil
	Profile  *jobs.Profile      // the site's: its cache, scratch and proxy; nil is none
}

// Cache is that of a state directory. It is a way to the files: several may be used at once.
func Cache(home string, on jobs.Starter, o Options) (*images.Cache, error) {
	last := ""
	progress := func(line string) {
		if line != last && o.Progress != nil {
			o.Progress(line)
		}
		last = line
	}
	c := apptainer.NewCache(home, on, progress)
	c.Meter = o.Meter
	ask := &registry.Client{Progress: progress, Memo: c, Tool: c.Tool}
	if o.Profile != nil {
		if err := c.Use(*o.Profile); err != nil {
			return nil, err
		}
		if o.Profile.Proxy != (jobs.Proxy{}) {
			ask.HTTP = registry.Through(c.Getenv)
		}
	}
	ask.Keychain = c.Getenv
	c.Resolve = ask
	return c, nil
}
