package jobs

import (
	"regexp"
	"slices"
	"sync"
)

// Ways by which a notice is sent.
const (
	NoticeMail    = "mail"
	NoticeCommand = "command"
	NoticeWebhook = "webhook"
)

// Notify says how the user is told that jobs have ended; the zero value says not at
// all. It is recorded with the job and holds no secret: the address of a webhook,
// which often is one, stands in a file of its own.
type Notify struct {
	Mail        string   `json:"mail,omitempty"`         // one address, by the machine's sendmail
	Command     []string `json:"command,omitempty"`      // reads the notice as JSON
	WebhookFile string   `json:"webhook_file,omitempty"` // a private file with the URL
}

// Ways returns what is configured.
func (n *Notify) Ways() (ways []string) {
	if n == nil {
		return nil
	}
	if n.Mail != "" {
		ways = append(ways, NoticeMail)
	}
	if len(n.Command) > 0 {
		ways = append(ways, NoticeCommand)
	}
	if n.WebhookFile != "" {
		ways = append(ways, NoticeWebhook)
	}
	return ways
}

// Address in a header, and an argument of a program: no blank, no control
// character, no comma, no dash in front.
var mailForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._%+=-]{0,63}(@[A-Za-z0-9][A-Za-z0-9.-]{0,253})?$`)
})

// ValidMail tells whether a text is one address that mail can go to, or the name of
// a user of the machine.
func ValidMail(address string) bool { return mailForm().MatchString(address) }

// NoticeGroups are the labels of a job whose notices count it: its own, or "" for a
// job without one.
func (s *Spec) NoticeGroups() []string {
	if len(s.Labels) == 0 {
		return []string{""}
	}
	return slices.Clone(s.Labels)
}
