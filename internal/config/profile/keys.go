package profile

import (
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/internal/config/task"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

// driver reads the overlay driver of jobs; "auto" is what is meant without.
func driver(v strict.Value) string {
	const auto = "auto"
	if s := v.OneOf(jobs.DriverKernel, jobs.DriverFuse, jobs.DriverExt3, auto); s != auto {
		return s
	}
	return ""
}

// beat reads how often an attempt gives a sign of life. What others do about a
// silent one counts on the usual time at most.
func beat(v strict.Value) time.Duration {
	const least, usual = 500 * time.Millisecond, 10 * time.Second
	s := v.Text()
	if s == "" {
		return 0
	}
	d, err := jobs.ParseDuration(s)
	switch {
	case err != nil:
		v.Fail(err)
	case d < least || d > usual:
		v.Failf("", "must be a time from %s to %s, found %q", least, usual, s)
	default:
		return d
	}
	return 0
}

// mute reads whether nodes may submit jobs, the other way around.
func mute(v strict.Value) bool { return v.Given() && !v.Bool() }

// purge reads "DIRECTORY:DAYS".
func purge(v strict.Value) []jobs.Purge {
	var out []jobs.Purge
	for _, item := range v.Items(`"DIRECTORY:DAYS"`) {
		s := item.Text()
		if s == "" {
			continue
		}
		dir, after, _ := strings.Cut(s, ":")
		days, err := strconv.Atoi(strings.TrimSuffix(after, "d"))
		if err != nil || days < 1 || days > 3650 || !path.IsAbs(dir) || path.Clean(dir) != dir {
			item.Failf("", "must be a directory and after how many days files go there, such as %q, found %q", "/scratch:30", s)
			continue
		}
		out = append(out, jobs.Purge{Dir: dir, Days: days})
	}
	return out
}

var gpuTypeForm = pattern.Lazy(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// gpuType reads a type of Slurm's gres "gpu".
func gpuType(v strict.Value) string {
	s := v.Text()
	if s != "" && !gpuTypeForm().MatchString(s) {
		v.Failf("", "must be a type of GPU such as %q, found %q: the number is the task's", "a100", s)
		return ""
	}
	return s
}

// caps reads the bounds of the caps of tasks there.
func caps(t *strict.Reader) jobs.Caps {
	var p jobs.Place
	for _, key := range []string{jobs.CapRequests, jobs.CapTokens, jobs.CapUSD, jobs.CapTurns, jobs.CapWall, jobs.CapIdle, jobs.CapOutput} {
		keys.Find("caps."+key).Take(t.Take(key), &p)
	}
	return p.Caps
}

// network reads the bound of networks there, and their way out.
func network(t *strict.Reader, name string) (b jobs.NetworkBound, via string) {
	v := t.Take("via")
	if via = v.Text(); via != "" {
		if why := keys.Via(via); why != "" {
			v.Failf("", "%s", why)
		}
	}
	if b = task.Bound(t); b.Mode != "" || b.Deny != nil || b.Opaque != nil {
		b.Origin = "profile " + name
	}
	return b, via
}

// proxy reads the way out of the nodes. It stands in the job script, which
// others may be able to read, and so must hold no password.
func proxy(t *strict.Reader) jobs.Proxy {
	t.Synonyms("http", "http_proxy", "HTTP_PROXY")
	t.Synonyms("https", "https_proxy", "HTTPS_PROXY")
	t.Synonyms("no", "no_proxy", "NO_PROXY")
	p := jobs.Proxy{HTTP: proxyURL(t.Take("http")), HTTPS: proxyURL(t.Take("https"))}
	v := t.Take("no")
	if p.No = v.Text(); p.No != "" && !noProxyForm().MatchString(p.No) {
		v.Failf("", "must be names, addresses and networks separated by commas, found %q", p.No)
		p.No = ""
	}
	return p
}

var noProxyForm = pattern.Lazy(`^[A-Za-z0-9.*:/_,\[\]-]+$`)

func proxyURL(v strict.Value) string {
	s := v.Text()
	if s == "" {
		return ""
	}
	u, err := url.Parse(s)
	switch {
	case strings.Contains(s, "@"):
		v.Failf("", "must not hold a user or a password: it would stand in the job script, where others may read it")
	case err != nil, u.Host == "",
		u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" && u.Scheme != "socks5h",
		u.RawQuery != "", strings.ContainsAny(s, " '\"`$\\"):
		v.Failf("", "must be a URL such as %q, found %q", "http://proxy.example.org:3128", s)
	default:
		return s
	}
	return ""
}
