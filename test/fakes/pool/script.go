//go:build linux

package pool

import (
	"bufio"
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/jobs"
	"berth/templates"
)

// order is what a script asks for, in its lines "#POOL KEY VALUE".
type order struct {
	Title  string        `json:"-"`
	Folder string        `json:"folder"`
	Log    string        `json:"log"`
	Seats  int           `json:"seats,omitempty"`
	CPUs   int           `json:"cpus,omitempty"`
	Memory jobs.Bytes    `json:"memory_bytes,omitempty"`
	Limit  time.Duration `json:"limit_ns,omitempty"`
	Warn   time.Duration `json:"warn_ns,omitempty"`
	Delay  time.Duration `json:"delay_ns,omitempty"`
	Rerun  bool          `json:"rerun,omitempty"`
	Behind []string      `json:"behind,omitempty"`
	Avoid  []string      `json:"avoid,omitempty"`
}

const directive = "#POOL "

// Render implements [jobs.Scheduler].
func (p *Pool) Render(l jobs.Launch) (string, error) {
	usage := func(msg string) (string, error) { return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "the pool " + msg} }
	switch {
	case l.Name == "" || strings.ContainsAny(l.Name, " \"\\/"):
		return usage(fmt.Sprintf("takes no job called %q", l.Name))
	case !filepath.IsAbs(l.Dir):
		return usage(fmt.Sprintf("begins no job in %q", l.Dir))
	case l.Resources.GPUs != "":
		return usage("has no GPUs")
	case len(l.Slurm.Extra) > 0 && !l.Aside:
		return usage("takes no options of another scheduler")
	}
	var lines []string
	add := func(key, value string) {
		if value != "" && value != "0" && value != "0s" {
			lines = append(lines, directive+key+" "+strconv.Quote(value))
		}
	}
	log := l.Log
	if log == "" {
		log = jobs.SchedulerLog
	}
	add("title", l.Name)
	add("folder", l.Dir)
	add("log", log)
	add("seats", strconv.Itoa(l.Resources.Tasks))
	add("cpus", strconv.Itoa(l.Resources.CPUs))
	add("memory", strconv.FormatInt(int64(l.Resources.Memory), 10))
	add("limit", l.Resources.Time.String())
	add("warn", l.Warn.String())
	add("delay", l.Wait.String())
	if l.Requeue {
		add("rerun", "yes")
	}
	var ids []string
	for _, h := range l.Behind {
		if h.Scheduler == Name {
			ids = append(ids, h.NativeID)
		}
	}
	add("behind", strings.Join(ids, " "))
	add("avoid", strings.Join(l.Exclude, " "))
	return templates.Script(l, templates.Head{Lines: lines, Env: l.Env})
}

// orderOf reads it back.
func orderOf(script []byte) (o order, err error) {
	in := bufio.NewScanner(bytes.NewReader(script))
	for in.Scan() && strings.HasPrefix(in.Text(), "#") {
		text, ok := strings.CutPrefix(in.Text(), directive)
		if !ok {
			continue
		}
		key, quoted, _ := strings.Cut(text, " ")
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return o, fmt.Errorf("%q is no directive", in.Text())
		}
		switch key {
		case "title":
			o.Title = value
		case "folder":
			o.Folder = value
		case "log":
			o.Log = value
		case "seats":
			o.Seats, err = strconv.Atoi(value)
		case "cpus":
			o.CPUs, err = strconv.Atoi(value)
		case "memory":
			var n int64
			n, err = strconv.ParseInt(value, 10, 64)
			o.Memory = jobs.Bytes(n)
		case "limit":
			o.Limit, err = time.ParseDuration(value)
		case "warn":
			o.Warn, err = time.ParseDuration(value)
		case "delay":
			o.Delay, err = time.ParseDuration(value)
		case "rerun":
			o.Rerun = value == "yes"
		case "behind":
			o.Behind = words(value)
		case "avoid":
			o.Avoid = words(value)
		default:
			err = fmt.Errorf("%q is no key of a directive", key)
		}
		if err != nil {
			return o, err
		}
	}
	if o.Title == "" || o.Folder == "" {
		return o, fmt.Errorf("the script has no title or folder")
	}
	return o, in.Err()
}
