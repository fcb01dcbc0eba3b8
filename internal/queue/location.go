package queue

import (
	"encoding/json"
	"strings"

	"berth/jobs"
)

// location is where a pid has a meaning.
type location struct {
	Host string `json:"host"`
	Boot string `json:"boot"`
	NS   string `json:"ns"` // of processes
}

// dir is its name as a directory.
func (l location) dir() string {
	host := strings.Map(func(r rune) rune {
		if r == '/' || r <= ' ' {
			return '_'
		}
		return r
	}, l.Host)
	return host + "-" + l.Boot + "-" + l.NS
}

// elsewhere tells whether a handle's job may live where this process cannot
// see it. A job of an earlier boot of this host is over.
func (l location) elsewhere(h jobs.Handle) (host string, yes bool) {
	var at location
	if err := json.Unmarshal(h.Opaque, &at); err != nil || at.Host == "" {
		return "", false
	}
	return at.Host, at.Host != l.Host || (at.Boot == l.Boot && at.NS != l.NS)
}
