package wire

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
)

// sealed returns three frames, each alone.
func sealed(t *testing.T, k Key, from Side) (frames [][]byte) {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	w.Seal(k, from)
	for _, send := range []func() error{
		func() error { return w.Data(Stdout, 1, []byte("out")) },
		func() error { return w.Data(Stdout, 1, nil) },
		func() error { return w.Message(Exit, 1, ExitMessage{}) },
	} {
		if err := send(); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, bytes.Clone(b.Bytes()))
		b.Reset()
	}
	return frames
}

func TestSeals(t *testing.T) {
	k := NewKey()
	f := sealed(t, k, FromGuest)
	changed := func(i, at int) []byte {
		b := bytes.Clone(f[i])
		b[at] ^= 1
		return b
	}
	var forged bytes.Buffer
	if err := NewWriter(&forged).Message(Exit, 1, ExitMessage{}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		in   [][]byte
		good int
		want error
	}{
		"as sent":            {f, 3, io.EOF},
		"no seal":            {[][]byte{forged.Bytes()}, 0, ErrTampered},
		"no payload":         {[][]byte{head(Stdout, 1, 0)}, 0, ErrTampered},
		"repeated":           {[][]byte{f[0], f[0]}, 1, ErrTampered},
		"repeated later":     {[][]byte{f[0], f[1], f[0]}, 2, ErrTampered},
		"one is missing":     {[][]byte{f[0], f[2]}, 1, ErrTampered},
		"other stream":       {[][]byte{changed(0, 4)}, 0, ErrTampered},
		"other type":         {[][]byte{changed(0, 0)}, 0, ErrTampered},
		"other payload":      {[][]byte{changed(0, header)}, 0, ErrTampered},
		"other seal":         {[][]byte{changed(0, len(f[0])-1)}, 0, ErrTampered},
		"other conversation": {sealed(t, NewKey(), FromGuest), 0, ErrTampered},
		"looped back":        {sealed(t, k, FromClient), 0, ErrTampered},
		"cut":                {[][]byte{f[0], f[1][:len(f[1])-1]}, 1, io.ErrUnexpectedEOF},
		"too long":           {[][]byte{head(Stdout, 1, MaxData+sealSize+1)}, 0, ErrTooLong},
	} {
		r := NewReader(bytes.NewReader(slices.Concat(c.in...)))
		r.Seal(k, FromGuest)
		var err error
		good := -1
		for err == nil {
			_, err = r.Next()
			good++
		}
		if good != c.good || !errors.Is(err, c.want) {
			t.Errorf("%s: %d frames and %v, want %d and %v", name, good, err, c.good, c.want)
		}
	}
}

// TestSealedLimit sends the most that fits.
func TestSealedLimit(t *testing.T) {
	var b bytes.Buffer
	w, r := NewWriter(&b), NewReader(&b)
	k := NewKey()
	w.Seal(k, FromGuest)
	r.Seal(k, FromGuest)
	if err := w.Data(Stdout, 1, make([]byte, MaxData)); err != nil {
		t.Fatal(err)
	}
	if f, err := r.Next(); err != nil || len(f.Payload) != MaxData {
		t.Errorf("got %d bytes, %v", len(f.Payload), err)
	}
	for _, n := range []int{0, KeySize - 1, KeySize + 1} {
		if _, err := KeyOf(make([]byte, n)); err == nil {
			t.Errorf("a key of %d bytes", n)
		}
	}
}
