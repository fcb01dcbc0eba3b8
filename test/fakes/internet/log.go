//go:build linux

package internet

import (
	"encoding/json"
	"io"
	stdlog "log"
	"os"
	"strings"
	"sync"
	"time"
)

// An Event is a line of log.jsonl: something that arrived.
type Event struct {
	Time time.Time `json:"time"`
	Kind string    `json:"kind"`           // dns, tcp, tls, http, ssh, udp, packet
	To   string    `json:"to,omitempty"`   // ADDRESS:PORT
	From string    `json:"from,omitempty"` // ADDRESS:PORT
	Name string    `json:"name,omitempty"` // that was asked for: of DNS, TLS, the Host of a request
	What string    `json:"what,omitempty"` // the type of a question, the path of a request, the command of ssh, the protocol of a packet
}

type log struct {
	mu sync.Mutex
	to *os.File
}

func openLog(file string) (*log, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return &log{to: f}, err
}

func (l *log) add(e Event) {
	e.Time = time.Now().UTC()
	b, err := json.Marshal(e)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.to.Write(append(b, '\n'))
}

// ReadLog reads the events of a log.
func ReadLog(file string) (all []Event, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ParseLog(string(b))
}

// ParseLog reads the text of a log.
func ParseLog(text string) (all []Event, err error) {
	for line := range strings.Lines(text) {
		var e Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// quiet is where a server of HTTP says what clients did wrong: they do it on purpose.
func quiet() *stdlog.Logger { return stdlog.New(io.Discard, "", 0) }
