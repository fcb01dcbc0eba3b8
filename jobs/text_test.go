package jobs

import "testing"

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain ü 日本": "plain ü 日本", "a\nb\tc\rd": "a b c d", "\x1b]0;title\x07": " ]0;title ", "\x7f\u0085\u009b": "   ", "bad \xff": "bad \ufffd", "a\u202ecod.exe\u2066b\u200ec\u2028d": "a cod.exe b c d",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestEscaped(t *testing.T) {
	for in, want := range map[string]string{
		"plain ü 日本 \\": "plain ü 日本 \\", "a\nb\tc": `a\u{a}b\u{9}c`, "\x1b[2J": `\u{1b}[2J`, "bad \xff\xfe": `bad \xff\xfe`, "\ufffd": "\ufffd",
		"a\u200b\u202e\U000e0041\ufe0f\U000e0100\u3164\u2800\u00a0": `a\u{200b}\u{202e}\u{e0041}\u{fe0f}\u{e0100}\u{3164}\u{2800}\u{a0}`,
	} {
		if got := Escaped(in); got != want {
			t.Errorf("Escaped(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCell(t *testing.T) {
	for text, want := range map[string]string{"": "", "-": "-", "-1.5e3": "-1.5e3", "+7": "+7", "a=b": "a=b", "=1+1": "'=1+1", "-x": "'-x", "@A1": "'@A1", "+SUM(A1)": "'+SUM(A1)",
		"\t=1": "'\t=1", "\r=1": "'\r=1"} {
		if got := Cell(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
