package mcp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
)

// Of a client that does not read no more than so many messages are taken, and all of them once it does; the
// end of the context lets the reader go.
func TestPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all = 5 * mostUnanswered
		fromClient, client := io.Pipe()
		toClient, server := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		in, out, stop := pressed(ctx, fromClient, server)
		defer stop()
		sent := 0
		go func() {
			for i := range all {
				_, _ = fmt.Fprintf(client, "%d %s\n", i, bytes.Repeat([]byte("x"), 100<<10)) // longer than the buffer
				sent++
			}
			_ = client.Close()
		}()
		taken, turn, begun := 0, make(chan struct{}, 1), make(chan struct{}) // a lock would not count as waiting here
		go func() {
			lines := bufio.NewReaderSize(in, 1<<20)
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				var n int
				if _, err := fmt.Sscan(line, &n); err != nil || n != taken || len(line) < 100<<10 {
					t.Errorf("message %d is %.20q", taken, line)
				}
				taken++
				go func() { // as the library, which answers each by itself and writes one at a time
					turn <- struct{}{}
					if n == 0 {
						close(begun)
					}
					_, _ = fmt.Fprintln(out, n)
					<-turn
				}()
				if n == 0 {
					<-begun // what is read before an answer is on its way does not count
				}
			}
		}()
		synctest.Wait()
		if taken < mostUnanswered || taken > mostUnanswered+3 {
			t.Errorf("of a client that does not read %d messages are taken", taken)
		}
		answers := bufio.NewScanner(toClient)
		for range all {
			if !answers.Scan() {
				t.Fatal(answers.Err())
			}
		}
		synctest.Wait()
		if taken != all || sent != all {
			t.Errorf("of one that reads %d of %d", taken, sent)
		}
		cancel()
	})
}

// The end of the server ends a reader that is held back.
func TestPressureEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		_, server := io.Pipe()
		in, out, _ := pressed(ctx, io.NopCloser(bytes.NewReader(bytes.Repeat([]byte("{}\n"), 2*mostUnanswered))), server)
		go func() { _, _ = io.WriteString(out, "never taken") }()
		synctest.Wait()
		read := make(chan int64)
		go func() {
			n, _ := io.Copy(io.Discard, in)
			read <- n
		}()
		synctest.Wait()
		select {
		case n := <-read:
			t.Errorf("%d bytes are read without a wait", n)
		default:
		}
		cancel()
		if n := <-read; n != 6*mostUnanswered {
			t.Errorf("%d bytes after the end", n)
		}
		_ = server.Close()
	})
}
