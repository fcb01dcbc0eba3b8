package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// Text is a string of a message that may hold any bytes, as arguments, paths
// and values of variables do. JSON would replace what is not UTF-8; such a
// text becomes {"bytes": "base64"}.
type Text string

type textBytes struct {
	Bytes []byte `json:"bytes"`
}

// plain is the longest text that is written as a JSON string: in one, a byte may
// take six, and the limits of frames are for what no one reads.
const plain = 64 << 10

// MarshalJSON writes a JSON string where that keeps every byte.
func (t Text) MarshalJSON() ([]byte, error) {
	if len(t) <= plain && utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(textBytes{[]byte(t)})
}

// UnmarshalJSON reads both forms.
func (t *Text) UnmarshalJSON(b []byte) error {
	if strings.HasPrefix(string(b), `"`) {
		var s string
		err := json.Unmarshal(b, &s)
		*t = Text(s)
		return err
	}
	var v textBytes
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	if v.Bytes == nil {
		return errors.New("a text is neither a string nor bytes")
	}
	*t = Text(v.Bytes)
	return nil
}

// Texts turns strings into Texts.
func Texts(in []string) []Text {
	if in == nil {
		return nil
	}
	out := make([]Text, len(in))
	for i, s := range in {
		out[i] = Text(s)
	}
	return out
}

// Strings turns Texts into strings.
func Strings(in []Text) []string {
	if in == nil {
		return nil
	}
	out := make([]string, len(in))
	for i, t := range in {
		out[i] = string(t)
	}
	return out
}
