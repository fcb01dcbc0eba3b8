package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/sys/leaks"
	"berth/jobs"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestFrames(t *testing.T) {
	var stream bytes.Buffer
	w := NewWriter(&stream)
	big := bytes.Repeat([]byte{0, 255}, MaxData/2)
	for _, err := range []error{
		w.Message(Ping, 0, PingMessage{Number: 7}),
		w.Message(Quit, 0, nil),
		w.Data(Stdout, 3, big),
		w.Data(Stdout, 3, nil),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Data(Stdout, 3, make([]byte, MaxData+1)); !errors.Is(err, ErrTooLong) {
		t.Errorf("too much data: %v", err)
	}
	if err := w.Message(Start, 3, StartMessage{Shell: Text(strings.Repeat("x", MaxMessage))}); !errors.Is(err, ErrTooLong) {
		t.Errorf("too long a message: %v", err)
	}
	r := NewReader(&stream)
	for _, want := range []Frame{
		{Ping, 0, []byte(`{"number":7}`)}, {Quit, 0, []byte(`{}`)}, {Stdout, 3, big}, {Stdout, 3, []byte{}},
	} {
		got, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// A long command goes only to who has said to take it, and fits however it is
// written.
func TestLongStart(t *testing.T) {
	text := Text(strings.Repeat("\x01<", jobs.MaxCommand/2))
	var stream bytes.Buffer
	w := NewWriter(&stream)
	if err := w.Message(Start, 1, StartMessage{Shell: text}); !errors.Is(err, ErrTooLong) || stream.Len() > 0 {
		t.Errorf("to an earlier version: %v", err)
	}
	w.Takes(math.MaxInt)
	if err := w.Message(Start, 1, StartMessage{Shell: text}); err != nil {
		t.Fatal(err)
	}
	var got StartMessage
	if f, err := NewReader(&stream).Next(); err != nil || f.Decode(&got) != nil || got.Shell != text {
		t.Errorf("%d bytes came, %v", len(got.Shell), err)
	}
	for _, typ := range []Type{Start, Exit} {
		if err := w.Message(typ, 2, strings.Repeat("x", typ.most())); !errors.Is(err, ErrTooLong) {
			t.Errorf("type %d: %v", typ, err)
		}
	}
}

// head is the header of a frame.
func head(t Type, stream, length uint32) []byte {
	b := binary.BigEndian.AppendUint32([]byte{byte(t)}, stream)
	return binary.BigEndian.AppendUint32(b, length)
}

func TestBrokenFrames(t *testing.T) {
	for name, c := range map[string]struct {
		in   []byte
		want error
	}{
		"in the header":         {head(Stdout, 1, 5)[:4], io.ErrUnexpectedEOF},
		"after the header":      {head(Stdout, 1, 5), io.ErrUnexpectedEOF},
		"in the payload":        {append(head(Stdout, 1, 5), "ab"...), io.ErrUnexpectedEOF},
		"huge data":             {head(Stdout, 1, math.MaxUint32), ErrTooLong},
		"huge message":          {head(Start, 1, math.MaxUint32), ErrTooLong},
		"data over the limit":   {head(Stdin, 1, MaxData+1), ErrTooLong},
		"huge, unknown message": {head(77, 1, MaxMessage+1), ErrTooLong},
	} {
		if _, err := NewReader(bytes.NewReader(c.in)).Next(); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// TestPromisedLength has many readers meet a frame that announces the most
// that is allowed and never brings it.
func TestPromisedLength(t *testing.T) {
	const readers = 200
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range readers {
		_, _ = NewReader(bytes.NewReader(head(Start, 1, MaxMessage))).Next()
	}
	runtime.ReadMemStats(&after)
	if per := (after.TotalAlloc - before.TotalAlloc) / readers; per > 4*step {
		t.Errorf("a promise of %d bytes cost %d", MaxMessage, per)
	}
}

func TestFind(t *testing.T) {
	nonce := NewNonce()
	old := NewNonce()
	var hello bytes.Buffer
	if err := NewWriter(&hello).Open(GuestMagic, nonce, GuestHello{Version: Version, Path: "/bin"}); err != nil {
		t.Fatal(err)
	}
	for name, banner := range map[string]string{
		"nothing":        "",
		"text":           "Welcome to the cluster\nQuota: 80 %\n",
		"part of it":     GuestMagic[:5] + GuestMagic[:3] + "\x00",
		"another's":      GuestMagic + string(old[:]),
		"own echo":       ClientMagic + string(nonce[:]),
		"almost a limit": strings.Repeat("\x00", MaxBanner),
	} {
		r := NewReader(strings.NewReader(banner + hello.String()))
		got, err := r.Find(GuestMagic, &nonce)
		if err != nil || string(got) != banner {
			t.Errorf("%s: skipped %d bytes, %v", name, len(got), err)
		}
		var g GuestHello
		if err := r.Hello(&g); err != nil || g.Path != "/bin" {
			t.Errorf("%s: %+v %v", name, g, err)
		}
	}
	if _, err := NewReader(strings.NewReader(strings.Repeat("y\n", MaxBanner))).Find(GuestMagic, &nonce); !errors.Is(err, ErrNoHello) {
		t.Errorf("endless banner: %v", err)
	}
	if b, err := NewReader(strings.NewReader("FATAL: no such image\n")).Find(GuestMagic, &nonce); !errors.Is(err, io.ErrUnexpectedEOF) || len(b) == 0 {
		t.Errorf("banner only: %q %v", b, err)
	}
}

func TestText(t *testing.T) {
	for _, s := range []string{"", "plain", "two\nlines", "null", `{"bytes":"eA=="}`, "nul\x00", "\xff\xfe", "caf\u00e9 \u2028 <&>", "half \xc3"} {
		b, err := json.Marshal(Text(s))
		if err != nil {
			t.Fatal(err)
		}
		var got Text
		if err := json.Unmarshal(b, &got); err != nil || string(got) != s {
			t.Errorf("%q became %s and %q, %v", s, b, got, err)
		}
	}
	for _, bad := range []string{"null", "7", "{}", `{"bytes":"*"}`, "[]"} {
		var got Text
		if json.Unmarshal([]byte(bad), &got) == nil {
			t.Errorf("%s was taken as %q", bad, got)
		}
	}
}

// loop joins a Sender with an Inbox as two sides of a stream do.
type loop struct {
	in     *Inbox
	sender *Sender
	mu     sync.Mutex
	most   int // held at once
}

func (l *loop) Write(frame []byte) (int, error) {
	if err := l.in.Put(frame[header:]); err != nil {
		return 0, err
	}
	l.in.mu.Lock()
	held := l.in.owed
	l.in.mu.Unlock()
	l.mu.Lock()
	l.most = max(l.most, held)
	l.mu.Unlock()
	return len(frame), nil
}

func newLoop() *loop {
	l := &loop{in: NewInbox(Stdout)}
	l.sender = NewSender(NewWriter(l), Stdout, 1)
	return l
}

type slowWriter struct {
	bytes.Buffer
	every time.Duration
}

func (s *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(s.every)
	return s.Buffer.Write(p)
}

func TestFlow(t *testing.T) {
	l := newLoop()
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB
	var sending sync.WaitGroup
	sending.Go(func() {
		// Pieces of all sizes, down to single bytes.
		for p, n := want, 1; len(p) > 0; n = n*3%100003 + 1 {
			n = min(n, len(p))
			if _, err := l.sender.Write(p[:n]); err != nil {
				t.Error(err)
			}
			p = p[n:]
		}
		if err := l.sender.Close(); err != nil {
			t.Error(err)
		}
	})
	got := &slowWriter{every: time.Millisecond}
	if err := l.in.Drain(got, func(n int) {
		if err := l.sender.Grant(n); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Error(err)
	}
	sending.Wait()
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got %d bytes, want %d", got.Len(), len(want))
	}
	if l.most > Window {
		t.Errorf("held %d bytes", l.most)
	}
}

func TestFlowIsKept(t *testing.T) {
	in := NewInbox(Stdout)
	for range Window / MaxData {
		if err := in.Put(make([]byte, MaxData)); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.Put([]byte{1}); !errors.Is(err, ErrFlow) {
		t.Errorf("more than the window: %v", err)
	}
	in.Fail()
	if err := in.Put([]byte{1}); err != nil {
		t.Errorf("after it was given up: %v", err)
	}
	s := NewSender(NewWriter(io.Discard), Stdout, 1)
	for _, n := range []int{1, 0, -1, math.MinInt, math.MaxInt} {
		if err := s.Grant(n); !errors.Is(err, ErrFlow) {
			t.Errorf("grant of %d that was never sent: %v", n, err)
		}
	}
	done := make(chan error)
	go func() {
		_, err := s.Write(make([]byte, 2*Window))
		done <- err
	}()
	time.Sleep(10 * time.Millisecond)
	s.Stop()
	if err := <-done; err == nil {
		t.Error("a stopped sender wrote everything without credit")
	}
}

// TestDrainThrowsAway has a receiver that fails: the sender must not notice.
func TestDrainThrowsAway(t *testing.T) {
	l := newLoop()
	go func() {
		_, _ = l.sender.Write(make([]byte, 4*Window))
		_ = l.sender.Close()
	}()
	full := errors.New("disk is full")
	if err := l.in.Drain(failing{full}, func(n int) { _ = l.sender.Grant(n) }); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// An Inbox is read to its end, also where it is given up behind that; what was given up
// before is no whole.
func TestInboxRead(t *testing.T) {
	for name, want := range map[string]error{"whole": io.EOF, "whole, given up": io.EOF, "given up": io.ErrUnexpectedEOF} {
		in, granted := NewInbox(FlowUp), 0
		big := make([]byte, FlowWindow/2)
		if err := in.Put(big); err != nil {
			t.Fatal(err)
		}
		if name != "given up" {
			if err := in.Put(nil); err != nil {
				t.Fatal(err)
			}
		}
		if name != "whole" {
			in.Fail()
		}
		got := 0
		for p := make([]byte, 10_000); ; {
			n, err := in.Read(p, func(n int) { granted += n })
			if got += n; err != nil {
				if !errors.Is(err, want) || got != len(big) || granted < len(big)-FlowWindow/4 {
					t.Errorf("%s: %d bytes, %d granted, %v", name, got, granted, err)
				}
				break
			}
		}
	}
}
