package config

import (
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"berth/internal/config/strict"
	"berth/internal/sys/disk"
	"berth/jobs"
)

// notify is what the keys say.
func (c *Config) notify() *jobs.Notify {
	return &jobs.Notify{
		Mail:        shown(c.said("notify.mail").V),
		Command:     get[[]string](c.said("notify.command")),
		WebhookFile: shown(c.said("notify.webhook_file").V),
	}
}

// Notify is how the user is told that jobs have ended; nil is not at all.
func (c *Config) Notify() (*jobs.Notify, error) {
	n := c.notify()
	if len(n.Ways()) == 0 {
		return nil, nil
	}
	if n.WebhookFile != "" {
		if _, err := ReadWebhook(n.WebhookFile); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func mailAddress(v strict.Value, got any) any {
	if s, _ := got.(string); !jobs.ValidMail(s) {
		v.Failf("", "must be one address such as ada@example.org, found %q", s)
		return nil
	}
	return got
}

func noticeCommand(v strict.Value, got any) any {
	list, _ := got.([]string)
	for i, w := range list {
		if err := jobs.CheckText("a word", w); err != nil || i == 0 && w == "" {
			v.Failf("", "must name a program, and hold no control characters")
			return nil
		}
	}
	if len(list) > 0 && strings.Contains(list[0], "/") && !filepath.IsAbs(list[0]) {
		v.Failf("give its full path, or a name that is found on PATH", "names a program by a relative path: %q", list[0])
		return nil
	}
	return got
}

// ReadWebhook returns the address in a private file. It may be a secret, so that no
// error has it.
func ReadWebhook(path string) (string, error) {
	bad := func(why, hint string) error {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the webhook's file " + path + " " + why, Hint: hint}
	}
	f, err := disk.OpenRegular(path)
	if err != nil {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "read the webhook's file", Err: err}
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !ours(fi) || fi.Mode().Perm()&0o077 != 0 {
		return "", bad("can be read by others, and may hold a secret", "chmod 600 "+path)
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", bad("cannot be read", "")
	}
	address := strings.TrimSpace(string(b))
	u, err := url.Parse(address)
	if err == nil && u.Host != "" && jobs.CheckText("it", address) == nil {
		ip := net.ParseIP(u.Hostname())
		if u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()) {
			return address, nil
		}
	}
	return "", bad("must hold one line, an address that begins with https://, or http:// on this machine", "")
}
