package ssh

import (
	"fmt"
	"strconv"
	"strings"

	"berth/jobs"
)

func badPort(p string) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: "the ssh port " + p + " is not a number from 1 to 65535", Hint: "the usual one is 22"}
}

// CheckSpec refuses what could not be a host, or what ssh or a shell that it
// starts (a ProxyCommand of the user) could take for something else.
func CheckSpec(s jobs.SSHSpec) error {
	if s.Host == "" {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the backend ssh needs a host", Hint: "--host HOST, or berth config set terminal.ssh_host HOST"}
	}
	for _, v := range [][2]string{{"the ssh host", s.Host}, {"the ssh user", s.User}, {"the ssh key", s.Key}} {
		if err := jobs.CheckText(v[0], v[1]); err != nil {
			return err
		}
		if strings.HasPrefix(v[1], "-") {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: v[0] + " begins with a dash"}
		}
	}
	if i := strings.IndexFunc(s.Host, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-:%[]", r)
	}); i >= 0 {
		e := &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the ssh host %q is not a name or address", s.Host),
			Hint: "the user and the port are values of their own; or name a Host of ~/.ssh/config"}
		return e
	}
	if strings.ContainsAny(s.User, " '`\"\\$;&<>|(){}") {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the ssh user %q holds characters that no user name has", s.User),
			Hint: "an unusual name can stand as User in ~/.ssh/config"}
	}
	if s.Port < 0 || s.Port > 65535 {
		return badPort(strconv.Itoa(s.Port))
	}
	for _, o := range s.Options {
		name, value, ok := strings.Cut(o, "=")
		if err := jobs.CheckText("the ssh option "+strconv.Quote(name), o); err != nil {
			return err
		}
		letters := strings.IndexFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') }) < 0
		if !ok || name == "" || value == "" || !letters {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the ssh option %q is not written as Name=value", o),
				Hint: "such as ProxyJump=gate.example.org; man ssh_config"}
		}
	}
	return nil
}

// where names the destination for people.
func where(s jobs.SSHSpec) string {
	h := s.Host
	if s.User != "" {
		h = s.User + "@" + h
	}
	if s.Port != 0 && s.Port != 22 {
		h += ":" + strconv.Itoa(s.Port)
	}
	return h
}

// byHand is the command with which a person reaches the same destination.
func byHand(s jobs.SSHSpec, more ...string) string {
	words := append([]string{"ssh"}, own(s)...)
	words = append(words, more...)
	words = append(words, s.Host)
	for i, w := range words {
		words[i] = anyShell(w)
	}
	return strings.Join(words, " ")
}

// own are the options that the spec asks for. They come first on the command
// line: ssh takes the first value it is given.
func own(s jobs.SSHSpec) []string {
	var a []string
	for _, o := range s.Options {
		a = append(a, "-o", o)
	}
	if s.User != "" {
		a = append(a, "-l", s.User)
	}
	if s.Port != 0 {
		a = append(a, "-p", strconv.Itoa(s.Port))
	}
	if s.Key != "" {
		a = append(a, "-i", s.Key)
	}
	return a
}
