package wire

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzReader feeds any bytes to the reading side, with and without a hello.
func FuzzReader(f *testing.F) {
	var s bytes.Buffer
	w := NewWriter(&s)
	_ = w.Open(ClientMagic, Nonce{1, 2, 3}, ClientHello{Version: 1, Home: []Text{"/home/alice", "\xff"}})
	_ = w.Message(Start, 1, StartMessage{Argv: []Text{"a", "\xff"}, Env: []Text{"A=\n"}, Prompt: true})
	_ = w.Data(PromptData, 1, []byte("do it\x00"))
	_ = w.Data(PromptData, 1, nil)
	_ = w.Message(Credit, 1, CreditMessage{Channel: Stdout, Bytes: 70000})
	_ = w.Message(Signal, 1, SignalMessage{Signal: 15, Scope: ScopeTree})
	f.Add(s.Bytes())
	f.Add(append([]byte("banner\n"), s.Bytes()...))
	f.Add(s.Bytes()[:len(s.Bytes())-3])
	f.Add(head(Stdout, 1, 1<<31))
	f.Add(head(Start, 0, MaxMessage))
	f.Add([]byte(ClientMagic))
	f.Fuzz(func(t *testing.T, in []byte) {
		frames := func(r *Reader) {
			total := 0
			for {
				fr, err := r.Next()
				if err != nil {
					return
				}
				total += header + len(fr.Payload)
				if total > len(in) || len(fr.Payload) > fr.Type.most() || (fr.Type.raw() && len(fr.Payload) > MaxData) {
					t.Fatalf("%d bytes of payload out of %d", len(fr.Payload), len(in))
				}
				var out bytes.Buffer
				for _, v := range []any{new(ClientHello), new(GuestHello), new(StartMessage), new(ExitMessage), new(SignalMessage), new(EndMessage), new(CreditMessage)} {
					if fr.Decode(v) == nil {
						// What was read can be written and read again.
						b, err := json.Marshal(v)
						if err == nil {
							err = json.Unmarshal(b, v)
						}
						if err != nil {
							t.Fatalf("%T of %q: %v", v, fr.Payload, err)
						}
					}
				}
				if fr.Type.raw() {
					if err := NewWriter(&out).Data(fr.Type, fr.Stream, fr.Payload); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		frames(NewReader(bytes.NewReader(in)))
		r := NewReader(bytes.NewReader(in))
		if _, err := r.Find(ClientMagic, nil); err == nil {
			if _, err := r.Nonce(); err == nil {
				frames(r)
			}
		}
	})
}
