package mdtext

import (
	"slices"
	"strings"
	"unicode"
)

// inline replaces the marks within a line of text: code, links, bold and italic. Of a picture
// the words are shown that stand for it.
func (p *page) inline(text string) string {
	var b strings.Builder
	for {
		plain := strings.IndexAny(text, "`[*\\!")
		if plain < 0 {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:plain])
		text = text[plain:]
		n := p.span(&b, text)
		if n == 0 {
			n = 1
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
}

// span writes the marked text at the beginning of another one, and returns its length
// with the marks; 0 is that there is none.
func (p *page) span(b *strings.Builder, text string) int {
	switch {
	case strings.HasPrefix(text, "`"):
		mark := text[:len(text)-len(strings.TrimLeft(text, "`"))]
		inside, _, ok := strings.Cut(text[len(mark):], mark)
		if !ok {
			b.WriteString(mark)
			return len(mark)
		}
		if p.Ink {
			b.WriteString(words(strings.TrimSpace(inside), "\x1b[1m", "\x1b[22m"))
		} else {
			b.WriteString(mark + inside + mark)
		}
		return len(inside) + 2*len(mark)
	case strings.HasPrefix(text, "!["):
		inside, _, n := link(text[1:])
		if n == 0 {
			return 0
		}
		b.WriteString("(picture: " + p.inline(inside) + ")")
		return len("!") + n
	case strings.HasPrefix(text, "["):
		inside, target, n := link(text)
		if n > 0 {
			b.WriteString(p.inline(inside))
			p.target(b, inside, target)
		}
		return n
	case strings.HasPrefix(text, "**"):
		return p.emphasis(b, text, "**", "\x1b[1m", "\x1b[22m")
	case strings.HasPrefix(text, "*"):
		return p.emphasis(b, text, "*", "\x1b[4m", "\x1b[24m")
	case strings.HasPrefix(text, `\`) && len(text) > 1 && strings.Contains("\\`*_[]<>#|", text[1:2]):
		b.WriteString(text[1:2])
		return 2
	}
	return 0
}

// emphasis writes what stands between two marks. A mark with a space behind it, or
// another one before it, is a star.
func (p *page) emphasis(b *strings.Builder, text, mark, on, off string) int {
	inside, _, ok := strings.Cut(text[len(mark):], mark)
	if !ok || inside == "" || unicode.IsSpace(rune(inside[0])) || strings.HasSuffix(inside, " ") || strings.Count(inside, "`")%2 == 1 {
		return 0
	}
	if shown := p.inline(inside); p.Ink {
		b.WriteString(words(shown, on, off))
	} else {
		b.WriteString(shown)
	}
	return len(inside) + 2*len(mark)
}

// words switches a style on and off for each word, so that no space and no end of a
// line has it.
func words(text, on, off string) string {
	var out []string
	for word := range strings.SplitSeq(text, " ") {
		if word != "" {
			word = on + word + off
		}
		out = append(out, word)
	}
	return strings.Join(out, " ")
}

// link takes "[inside](target)" apart; its length is 0 if there is none.
func link(text string) (inside, target string, length int) {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '[':
			depth++
		case ']':
			depth--
		}
		if depth > 0 {
			continue
		}
		rest, ok := strings.CutPrefix(text[i+1:], "(")
		target, _, closed := strings.Cut(rest, ")")
		if !ok || !closed {
			return "", "", 0
		}
		return text[1:i], target, i + len("](") + len(target) + len(")")
	}
	return "", "", 0
}

// target writes where a link leads unless its text says it, and notes another page.
func (p *page) target(b *strings.Builder, inside, target string) {
	file, _, _ := strings.Cut(target, "#")
	switch {
	case strings.Contains(target, "://"):
		if inside != target {
			b.WriteString(" (" + target + ")")
		}
	case strings.HasSuffix(file, ".md") && !slices.Contains(p.topics, file):
		p.topics = append(p.topics, file)
	}
}
