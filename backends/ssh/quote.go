package ssh

import "strings"

// anyShell returns word as every login shell reads it back: sh and its
// relatives, csh, fish. Within single quotes csh still obeys "!", and fish
// obeys a backslash, so these two and the quote itself stand outside of them,
// each behind a backslash, which all understand. A line break cannot be
// written for csh; control characters are refused before this.
func anyShell(word string) string {
	if word != "" && word[0] != '=' && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	var b strings.Builder
	b.WriteByte('\'')
	for _, c := range []byte(word) {
		switch c {
		case '\'', '\\', '!':
			b.WriteString(`'\`)
			b.WriteByte(c)
			b.WriteByte('\'')
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// plain tells whether a character means itself to every shell in any place of
// a word.
func plain(r rune) bool {
	return r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_./:@+-,=", r))
}

// viaSh returns the one line for the login shell that runs a script of /bin/sh
// with arguments $1, $2, ... The script is one line of ours; the arguments are
// never a part of its text.
func viaSh(script string, args ...string) string {
	var b strings.Builder
	b.WriteString("exec /bin/sh -c ")
	b.WriteString(anyShell(script))
	b.WriteString(" sh")
	for _, a := range args {
		b.WriteByte(' ')
		b.WriteString(anyShell(a))
	}
	return b.String()
}
