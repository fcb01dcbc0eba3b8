// Command netload is both ends of the connections that scripts/bench measures. Samples are
// lines "KEY VALUE" on stdout, times in milliseconds.
//
//	netload serve PORT                          on all addresses; prints "ready"
//	netload connect KEY ADDRESS N               a connection, a byte there and back
//	netload rate KEY ADDRESS N PARALLEL         N of them; connections a second
//	netload down|up KEY ADDRESS BYTES N         so many bytes, N times
//	netload hold ADDRESS N SECONDS open|stuffed   keeps N open; prints "held". Stuffed ones are
//	                                            sent more than they read
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// What a client says first: a letter and a number of bytes.
const (
	ping = 'p'
	down = 'd'
	up   = 'u'
)

const buffer = 256 << 10

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "netload:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	words := map[string]int{"serve": 1, "connect": 3, "rate": 4, "down": 4, "up": 4, "hold": 3}
	if len(args) == 0 || words[args[0]] == 0 || len(args) < words[args[0]]+1 {
		return fmt.Errorf("usage: see its source")
	}
	number := func(i int) int {
		n, err := strconv.Atoi(args[i])
		if err != nil {
			fmt.Fprintln(os.Stderr, "netload:", err)
			os.Exit(2)
		}
		return n
	}
	switch args[0] {
	case "serve":
		return serve(args[1])
	case "connect":
		return connect(args[1], args[2], number(3))
	case "rate":
		return rate(args[1], args[2], number(3), number(4))
	case "hold":
		return hold(args[1], number(2), time.Duration(number(3))*time.Second, len(args) > 4 && args[4] == "stuffed")
	}
	return carry(args[0][0], args[1], args[2], number(3), number(4))
}

func serve(port string) error {
	l, err := net.Listen("tcp4", ":"+port)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = c.Close() }()
			_ = answer(c)
		}()
	}
}

func answer(c net.Conn) error {
	var said [9]byte
	for {
		if _, err := io.ReadFull(c, said[:]); err != nil {
			return err
		}
		n := int64(binary.BigEndian.Uint64(said[1:]))
		switch said[0] {
		case down:
			b := make([]byte, buffer)
			for n > 0 {
				m, err := c.Write(b[:min(n, buffer)])
				if err != nil {
					return err
				}
				n -= int64(m)
			}
			continue
		case up:
			if err := take(c, n); err != nil {
				return err
			}
		}
		if _, err := c.Write(said[:1]); err != nil {
			return err
		}
	}
}

// take reads n bytes, as a program does that looks at them.
func take(c net.Conn, n int64) error {
	b := make([]byte, buffer)
	for n > 0 {
		m, err := c.Read(b[:min(n, buffer)])
		if err != nil {
			return err
		}
		n -= int64(m)
	}
	return nil
}

func say(c net.Conn, what byte, n int) error {
	_, err := c.Write(binary.BigEndian.AppendUint64([]byte{what}, uint64(n)))
	return err
}

func dial(address string) (net.Conn, error) {
	c, err := net.Dial("tcp", address)
	if err == nil {
		err = say(c, ping, 0)
	}
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	return c, err
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func connect(key, address string, n int) error {
	for i := range n + 3 {
		begun := time.Now()
		c, err := dial(address)
		if err != nil {
			return err
		}
		if took := time.Since(begun); i >= 3 { // what is made at the first use is not what is measured
			fmt.Printf("%s %.3f\n", key, ms(took))
		}
		_ = c.Close()
	}
	return nil
}

func rate(key, address string, n, parallel int) error {
	var all sync.WaitGroup
	errs := make(chan error, parallel)
	begun := time.Now()
	for range parallel {
		all.Go(func() {
			for range n / parallel {
				c, err := dial(address)
				if err != nil {
					errs <- err
					return
				}
				_ = c.Close()
			}
		})
	}
	all.Wait()
	took := time.Since(begun)
	select {
	case err := <-errs:
		return err
	default:
	}
	fmt.Printf("%s %.0f\n", key, float64(n/parallel*parallel)/took.Seconds())
	return nil
}

func carry(way byte, key, address string, bytes, n int) error {
	for range n {
		c, err := dial(address)
		if err != nil {
			return err
		}
		begun := time.Now()
		if err := say(c, way, bytes); err != nil {
			return err
		}
		if way == down {
			err = take(c, int64(bytes))
		} else {
			b := make([]byte, buffer)
			for left := bytes; left > 0 && err == nil; left -= buffer {
				_, err = c.Write(b[:min(left, buffer)])
			}
			if err == nil {
				err = take(c, 1)
			}
		}
		if err != nil {
			return err
		}
		fmt.Printf("%s %.1f\n", key, ms(time.Since(begun)))
		_ = c.Close()
	}
	return nil
}

func hold(address string, n int, wait time.Duration, stuffed bool) error {
	all := make([]net.Conn, 0, n)
	for range n {
		c, err := dial(address)
		if err != nil {
			return fmt.Errorf("connection %d: %w", len(all)+1, err)
		}
		if stuffed {
			if t, ok := c.(*net.TCPConn); ok {
				_ = t.SetReadBuffer(4 << 10)
			}
			err = say(c, down, 16<<20)
		}
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	if stuffed {
		time.Sleep(2 * time.Second) // until nothing more moves
	}
	fmt.Println("held")
	time.Sleep(wait)
	for _, c := range all {
		_ = c.Close()
	}
	return nil
}
