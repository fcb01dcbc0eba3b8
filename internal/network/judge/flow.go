package judge

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"berth/internal/network/policy"
)

const (
	bufferSize = 16 << 10
	maxAddrs   = 16 // of a name, that are tried
	// doneIdle is how long a program may be silent whose server has ended.
	doneIdle = time.Minute
	// lingerTime is how long a program that is refused may take to read why.
	lingerTime = time.Second
)

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// A Conn is the stream to the program.
type Conn interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// A Request is a connection that a program wants.
type Request struct {
	Phase string
	Host  string // a name, or an address
	Port  uint16
	// Proxy says that the program takes this for an HTTP proxy: a request has the whole
	// URL. There is one in a flow, and the server is told so.
	Proxy bool
	// Answer is called once, before a byte is read, with the decision on the name: the
	// proxy door answers with it. May be nil.
	Answer func(policy.Decision)
}

// flow is one connection.
type flow struct {
	j    *Judge
	req  Request
	name string     // "" for an address
	addr netip.Addr // that was asked for, or is being dialled

	client   Conn
	from     io.Reader // the client, or what reads from it
	usage    *usage
	up, down atomic.Int64
	active   atomic.Int64 // when there was a byte last, Unix ns
	answered atomic.Int64 // when there was one from the server
	seen     atomic.Bool  // there was a byte to carry
	done     chan struct{}
	watch    *upgradeWatch // nil where no answer is looked at
	tls      bool          // it has begun as TLS
	own      []netip.Addr  // this machine's, when they were needed first

	mu     sync.Mutex
	entry  Entry
	ended  bool
	server net.Conn
	timer  *time.Timer
	wait   time.Duration // how long it may be silent
	why    string        // what it is then
	copies bool          // the first byte ends the wait for it
}

// Flow carries a connection to its end, closes it, and returns what was recorded. It
// ends with ctx, too.
func (j *Judge) Flow(ctx context.Context, req Request, client Conn) Entry {
	f := j.newFlow(req, client)
	stop := context.AfterFunc(ctx, func() { f.end("the attempt has ended") })
	if total := j.o.Limits.Total; total > 0 {
		late := time.AfterFunc(total, func() { f.end("limit: total time (" + total.String() + ")") })
		defer late.Stop()
	}
	n := j.flows.Add(1)
	d, err := f.judge(ctx, n)
	if err == nil {
		if err = f.ready(ctx); err != nil {
			d = policy.Decision{Hint: err.Error(), NoWay: true}
		}
	}
	answered := req.Answer != nil && err != nil
	if req.Answer != nil {
		req.Answer(d)
	}
	if err == nil {
		err = f.begin(ctx, d.Opaque)
	}
	if answered {
		f.explain(err) // the door has told it in its own words
	} else if err != nil {
		f.refuse(err)
	}
	stop()
	f.end("")
	return f.record()
}

func (j *Judge) newFlow(req Request, client Conn) *flow {
	f := &flow{j: j, req: req, client: client, from: client, done: make(chan struct{})}
	f.entry = Entry{Time: time.Now().UTC(), Phase: req.Phase, Port: req.Port, Decision: Denied}
	f.expect(j.o.Limits.First, "limit: the first bytes were not complete")
	return f
}

// record notes a flow that has ended.
func (f *flow) record() Entry {
	f.mu.Lock()
	f.timer.Stop()
	e := f.entry
	f.mu.Unlock()
	f.j.flows.Add(-1)
	e.Up, e.Down, e.Seconds = f.up.Load(), f.down.Load(), time.Since(e.Time).Seconds()
	f.j.o.Record(e)
	return e
}

// judge is the decision on what was asked for, of which there are n flows.
func (f *flow) judge(ctx context.Context, n int64) (d policy.Decision, err error) {
	l := &f.j.o.Limits
	refuse := func(status int, why string) (policy.Decision, error) {
		return policy.Decision{Hint: why}, &refusal{status: status, why: why}
	}
	if n > int64(l.Flows) {
		return refuse(0, limit("flows at once", l.Flows).Error())
	}
	if !f.j.pace.wait(ctx, l.First, l.FlowRate) {
		return refuse(0, limit("flows a second", l.FlowRate).Error())
	}
	var ok bool
	if f.name, f.addr, ok = policy.Target(f.req.Host); !ok {
		return refuse(400, noHost(f.req.Host))
	}
	f.entry.Name = f.name
	if f.name == "" {
		f.entry.Addr = f.addr.String()
	}
	if d = f.decide(""); !d.Allow {
		f.entry.After, d.Hint = f.j.redirected(f.req.Phase, f.host(), d.Hint)
		return d, denied(d)
	}
	if f.usage, _, err = f.j.count(ctx, f.host()); err != nil {
		return refuse(503, err.Error())
	}
	f.entry.Decision = Allowed
	return d, nil
}

// ready waits until there is a way out.
func (f *flow) ready(ctx context.Context) error {
	if f.j.o.Ready == nil {
		return nil
	}
	l := &f.j.o.Limits
	f.expect(l.Way+time.Second, "limit: no way out")
	ctx, cancel := context.WithTimeout(ctx, l.Way)
	defer cancel()
	if err := f.j.o.Ready(ctx); err != nil {
		return unreached("", err)
	}
	f.expect(l.First, "limit: the first bytes were not complete")
	return nil
}

// begin reads the first bytes where the port says what they have to be.
func (f *flow) begin(ctx context.Context, opaque bool) error {
	switch {
	case f.req.Proxy:
		return f.requests(ctx, bufio.NewReaderSize(f.client, bufferSize))
	case opaque || f.name == "" || f.req.Port != 443 && f.req.Port != 80:
		f.note(func(e *Entry) { e.Opaque = true })
		if err := f.connect(ctx, ""); err != nil {
			return err
		}
		f.expect(f.j.o.Limits.First, "limit: no first byte")
		f.firstByte()
		f.relay(func() error { return f.plain(opaque) })
		return nil
	case f.req.Port == 80:
		r := bufio.NewReaderSize(f.client, bufferSize)
		if b, err := r.Peek(1); err != nil || b[0] != 22 {
			return f.requests(ctx, r)
		}
		f.from = r
	}
	f.tls = true
	first, server, err := f.hello(nil)
	if err != nil {
		return err
	}
	if d := f.decide(server); !d.Allow {
		return denied(d)
	}
	if err := f.connect(ctx, server); err != nil {
		return err
	}
	f.expect(f.j.o.Limits.Idle, "limit: idle")
	f.relay(func() error {
		err := f.toServer(first)
		if first = nil; err != nil {
			return err
		}
		return f.copyUp()
	})
	return nil
}

// hello reads a ClientHello behind what was read already, and its server's name.
func (f *flow) hello(b []byte) (all []byte, server string, err error) {
	for {
		if len(b) > 0 {
			name, done, err := parseHello(b)
			if err == nil && done && name == "" && f.name != "" {
				err = errNoName
			}
			if err != nil {
				return b, "", &refusal{status: 400, why: err.Error()}
			}
			if done {
				return b, name, nil
			}
		}
		if cap(b)-len(b) < 2<<10 {
			b = append(make([]byte, 0, min(2*cap(b)+4<<10, maxHello+4<<10)), b...)
		}
		n, err := f.from.Read(b[len(b):cap(b)])
		if b = b[:len(b)+n]; n == 0 && err != nil {
			return nil, "", cut(err)
		}
	}
}

// plain copies on a port of which nothing is known. What begins as a ClientHello has
// to be one with the name in it, unless the server has spoken first.
func (f *flow) plain(opaque bool) error {
	if opaque {
		return f.copyUp()
	}
	b := make([]byte, 2<<10)
	n, err := f.from.Read(b)
	for b = b[:n]; err == nil && len(b) < 3 && startsHello(b) && f.down.Load() == 0; b = b[:len(b)+n] {
		n, err = f.from.Read(b[len(b):cap(b)])
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(b) >= 3 && startsHello(b) && f.down.Load() == 0 {
		var server string
		if b, server, err = f.hello(b); err != nil {
			return err
		}
		if server != "" {
			if d := f.decide(server); !d.Allow {
				return denied(d)
			}
			f.note(func(e *Entry) { e.Opaque = f.name == "" })
		}
	}
	if sent := f.toServer(b); sent != nil || err != nil {
		return sent // the program has ended its direction
	}
	return f.copyUp()
}

// requests carries requests of HTTP.
func (f *flow) requests(ctx context.Context, r *bufio.Reader) error {
	next := func() (*head, error) {
		h, err := readHead(r)
		if err == nil {
			err = h.judged(f)
		}
		return h, err
	}
	h, err := next()
	if err != nil {
		return err
	}
	if err := f.connect(ctx, ""); err != nil {
		return err
	}
	if h.upgrade == "websocket" && !f.req.Proxy {
		f.watch = newUpgradeWatch()
	}
	f.expect(f.j.o.Limits.Idle, "limit: idle")
	f.relay(func() error {
		for first := true; ; first = false {
			if h.upgrade == "websocket" && !first {
				return bad("an upgrade behind another request")
			}
			if err := f.toServer(h.bytes(f.req.Proxy)); err != nil {
				return err
			}
			if err := h.copyBody(r, f.toServer); err != nil {
				return err
			}
			if f.req.Proxy {
				return errOne
			}
			if f.watch != nil && first {
				select {
				case switched := <-f.watch.answer:
					if switched {
						f.from = r
						return f.copyUp()
					}
				case <-f.done:
					return nil
				}
			}
			var err error
			if h, err = next(); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	})
	return nil
}

// errOne ends the way up without ending it for the server.
var errOne = errors.New("one request was carried")

// decide asks the policies that hold now.
func (f *flow) decide(server string) policy.Decision {
	q := policy.Request{Name: f.name, Addr: f.addr, Port: f.req.Port, ServerName: server}
	if f.addr.IsValid() {
		if f.own == nil {
			f.own = f.j.o.Own()
		}
		q.Own = f.own
	}
	d := f.j.policies.Load().of(f.req.Phase).Decide(q)
	f.note(func(e *Entry) { e.Rule, e.Origin = d.Rule, d.Origin })
	return d
}

// connect resolves, judges all addresses, and dials the first that is allowed and
// answers.
func (f *flow) connect(ctx context.Context, server string) error {
	l := &f.j.o.Limits
	f.expect(l.Resolve+l.Connect+time.Second, "limit: connecting")
	addrs := []netip.Addr{f.addr}
	if f.name != "" {
		if f.j.o.DialName != nil {
			return f.dialName(ctx)
		}
		var err error
		if addrs, err = f.resolve(ctx); err != nil {
			return unreached("", err)
		}
	}
	var may []netip.Addr
	var no *policy.Decision
	for _, a := range addrs[:min(len(addrs), maxAddrs)] {
		f.addr = a.Unmap()
		if d := f.decide(server); d.Allow {
			may = append(may, f.addr)
		} else if no == nil {
			no = &d
			f.note(func(e *Entry) { e.Addr = f.addr.String() })
		}
	}
	if len(may) == 0 {
		return denied(*no)
	}
	return f.dial(ctx, server, may)
}

// dial tries addresses one after the other, each for its part of the time.
func (f *flow) dial(ctx context.Context, server string, addrs []netip.Addr) (err error) {
	until := time.Now().Add(f.j.o.Limits.Connect)
	for i, a := range addrs {
		f.addr = a
		d := f.decide(server) // the rule of this one is in the record
		part := max(time.Until(until)/time.Duration(len(addrs)-i), time.Second)
		one, cancel := context.WithTimeout(context.WithValue(ctx, openedKey{}, d.Opened), part)
		var c net.Conn
		c, err = f.j.o.Dial(one, "tcp", netip.AddrPortFrom(a, f.req.Port))
		cancel()
		f.note(func(e *Entry) { e.Addr = a.String() })
		if err == nil {
			return f.connected(c)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return unreached("connect: ", err)
}

// dialName connects by way of what resolves the name itself.
func (f *flow) dialName(ctx context.Context) error {
	l := &f.j.o.Limits
	ctx, cancel := context.WithTimeout(ctx, l.Resolve+l.Connect)
	defer cancel()
	f.note(func(e *Entry) { e.ByName = true })
	c, err := f.j.o.DialName(ctx, f.name, f.req.Port)
	if err != nil {
		return unreached("connect: ", err)
	}
	return f.connected(c)
}

// connected has the flow's server.
func (f *flow) connected(c net.Conn) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		_ = c.Close()
		return errors.New("it ended while connecting")
	}
	f.server = c
	return nil
}

// resolve asks the resolver once.
func (f *flow) resolve(ctx context.Context) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, f.j.o.Limits.Resolve)
	defer cancel()
	host := f.name
	if strings.ContainsRune(host, '.') {
		host += "."
	}
	addrs, err := f.j.o.Resolver.LookupNetIP(ctx, "ip", host)
	var d *net.DNSError
	switch {
	case errors.Is(err, ErrNoWay):
		return nil, err
	case errors.As(err, &d) && d.IsNotFound, err == nil && len(addrs) == 0:
		return nil, errors.New("resolve: the machine's resolver knows no address of " + f.name)
	case errors.As(err, &d) && d.IsTimeout, ctx.Err() != nil:
		return nil, errors.New("resolve: the machine's resolver has not answered for " + f.name)
	case err != nil:
		return nil, errors.New("resolve: " + err.Error())
	}
	return addrs, nil
}

// relay copies both ways until both have ended.
func (f *flow) relay(up func() error) {
	var both sync.WaitGroup
	both.Go(func() {
		switch err := up(); {
		case errors.Is(err, errOne):
		case err != nil:
			f.fail(err)
		default:
			if c, ok := f.server.(interface{ CloseWrite() error }); ok {
				_ = c.CloseWrite()
			}
		}
	})
	if err := f.copyDown(); err != nil {
		f.fail(err)
	} else {
		_ = f.client.CloseWrite()
		f.expect(min(doneIdle, f.j.o.Limits.Idle), "")
	}
	both.Wait()
}

func (f *flow) copyUp() error {
	if f.from == io.Reader(f.client) {
		return f.copy(f.client, f.server, &f.up, f.sendsUp, f.toServer)
	}
	return f.copy(f.from, nil, &f.up, f.sendsUp, f.toServer)
}

func (f *flow) copyDown() error {
	if f.watch != nil {
		defer func() { f.watch.end(false) }()
	}
	var to any = f.client
	if f.watch != nil {
		to = nil
	}
	return f.copy(f.server, to, &f.down, f.sendsDown, f.toClient)
}

// copy copies one direction to its end, in which sent bytes have passed. What is to pass
// is told to sends first. A direction in which much passes between two sockets of the
// kernel's, to being the other, is moved there.
func (f *flow) copy(from io.Reader, to any, sent *atomic.Int64, sends func(n int) error, write func([]byte) error) error {
	await := awaiting(from)
	mover := newMover(from, to)
	waited := false
	for {
		much := sent.Load() >= muchData
		if much {
			n, moved, err := mover.move(sends)
			sent.Add(int64(n))
			switch {
			case err != nil || moved && n == 0:
				return err
			case moved:
				waited = false
				continue
			}
		}
		if !waited {
			if err := await(); err != nil {
				return err
			}
			if waited = much; much {
				continue
			}
		}
		waited = false
		if ended, err := copyOnce(from, write); ended || err != nil {
			return err
		}
	}
}

// muchData is what has passed in a direction that is worth two more system calls.
const muchData = 256 << 10

// awaiting returns what waits until there is something to read: a flow that is silent needs
// no buffer.
func awaiting(from io.Reader) func() error {
	switch r := from.(type) {
	case interface{ Await() error }:
		return r.Await
	case syscall.Conn:
		if c, err := r.SyscallConn(); err == nil {
			return func() error { return readable(c) }
		}
	}
	return func() error { return nil }
}

func copyOnce(from io.Reader, write func([]byte) error) (ended bool, err error) {
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	n, err := from.Read(buffer[:])
	if n > 0 {
		if err := write(buffer[:n]); err != nil {
			return false, err
		}
	}
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

func (f *flow) toServer(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if err := f.sendsUp(len(b)); err != nil {
		return err
	}
	n, err := f.server.Write(b)
	f.up.Add(int64(n))
	return err
}

func (f *flow) sendsUp(n int) error {
	f.active.Store(time.Now().UnixNano())
	f.seen.Store(true)
	if over(&f.usage.up, n, f.j.o.Limits.Up) {
		return limitBytes("up", f.j.o.Limits.Up)
	}
	return nil
}

func (f *flow) toClient(b []byte) error {
	if err := f.sendsDown(len(b)); err != nil {
		return err
	}
	n, err := f.client.Write(b)
	f.down.Add(int64(n))
	if f.watch != nil { // afterwards: what its end lets go on may end the flow
		f.watch.see(b)
	}
	return err
}

func (f *flow) sendsDown(n int) error {
	now := time.Now().UnixNano()
	f.active.Store(now)
	f.answered.Store(now)
	f.seen.Store(true)
	f.j.recent.Store(f)
	if over(&f.usage.down, n, f.j.o.Limits.Down) {
		return limitBytes("down", f.j.o.Limits.Down)
	}
	return nil
}

func over(used *atomic.Int64, n int, limit int64) bool {
	return limit > 0 && used.Add(int64(n)) > limit
}

// expect says how long the flow may be silent from now on.
func (f *flow) expect(wait time.Duration, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active.Store(time.Now().UnixNano())
	f.wait, f.why, f.copies = wait, why, false
	switch {
	case f.ended:
	case f.timer == nil:
		f.timer = time.AfterFunc(wait, f.tick)
	default:
		f.timer.Reset(wait)
	}
}

// firstByte has the first byte in any direction end the wait for it.
func (f *flow) firstByte() {
	f.mu.Lock()
	f.copies = true
	f.mu.Unlock()
}

// tick ends a flow that was silent for too long.
func (f *flow) tick() {
	f.mu.Lock()
	if f.copies && f.seen.Load() {
		f.wait, f.why, f.copies = f.j.o.Limits.Idle, "limit: idle", false
	}
	left := f.wait - time.Since(time.Unix(0, f.active.Load()))
	why := f.why
	if why != "" {
		why += " (" + f.wait.String() + ")"
	}
	if left > 0 && !f.ended {
		f.timer.Reset(left)
	}
	f.mu.Unlock()
	if left <= 0 {
		f.end(why)
	}
}

// end closes both sides. The first reason is the one that is recorded.
func (f *flow) end(reason string) {
	f.mu.Lock()
	if f.ended {
		f.mu.Unlock()
		return
	}
	f.ended = true
	if f.entry.Reason == "" {
		f.entry.Reason = reason
	}
	server := f.server
	f.mu.Unlock()
	close(f.done)
	_ = f.client.Close()
	if server != nil {
		_ = server.Close()
	}
}

// fail ends a flow that was being carried.
func (f *flow) fail(err error) {
	f.explain(err)
	f.end("")
}

// explain records why a flow does not go on.
func (f *flow) explain(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	var r *refusal
	switch isRefusal := errors.As(err, &r); {
	case isRefusal && r.policy:
		f.entry.Decision, f.entry.Rule, f.entry.Origin, f.entry.Hint, f.entry.Word = Denied, r.rule, r.origin, r.why, r.word
	case isRefusal && !r.unreached:
		f.entry.Decision, f.entry.Reason = Denied, r.why
	case errors.Is(err, io.EOF):
		f.entry.Reason = "it ended before its first bytes"
	case errors.Is(err, io.ErrUnexpectedEOF):
		f.entry.Reason = "it ended within its first bytes or a request"
	default:
		f.entry.Reason = err.Error()
	}
}

// note changes the entry.
func (f *flow) note(change func(*Entry)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.entry)
}

func (f *flow) host() string {
	if f.name == "" && f.addr.IsValid() {
		return f.addr.String()
	}
	return f.name
}

func limitBytes(way string, n int64) error {
	return errors.New("limit: bytes " + way + " (" + strconv.FormatInt(n, 10) + ")")
}

// A refusal is a flow that is not carried, or not further.
type refusal struct {
	status       int // of HTTP; 0 has no answer
	why          string
	unreached    bool // it was allowed, and the server was not reached
	policy       bool // a policy has decided
	rule, origin string
	word         string // that would allow it
}

func (r *refusal) Error() string { return r.why }

func unreached(what string, err error) *refusal {
	if errors.Is(err, ErrNoWay) {
		return &refusal{status: 503, why: err.Error(), unreached: true}
	}
	return &refusal{status: 502, why: what + err.Error(), unreached: true}
}

func denied(d policy.Decision) *refusal {
	return &refusal{status: 403, why: d.Hint, policy: true, rule: d.Rule, origin: d.Origin, word: d.Word}
}

// refuse tells the program why, in the protocol that the port has, and lets it read.
func (f *flow) refuse(err error) {
	f.explain(err)
	var r *refusal
	if !errors.As(err, &r) || r.status == 0 {
		return
	}
	f.expect(lingerTime, "")
	switch {
	case f.tls || f.req.Port == 443 && !f.req.Proxy:
		alert := byte(49) // access denied
		if r.unreached {
			alert = 80 // internal error
		}
		_, _ = f.client.Write([]byte{21, 3, 3, 0, 2, 2, alert})
	case f.req.Proxy || f.req.Port == 80:
		_, _ = f.client.Write(f.answer(r))
	}
	_ = f.client.CloseWrite()
	_, _ = io.CopyN(io.Discard, f.client, 64<<10)
}

// answer is HTTP's.
func (f *flow) answer(r *refusal) []byte {
	body, _ := json.Marshal(struct {
		Host string `json:"host"`
		Port uint16 `json:"port"`
		Rule string `json:"rule,omitempty"`
		Hint string `json:"hint"`
	}{f.host(), f.req.Port, r.rule, r.why})
	body = append(body, '\n')
	words := map[int]string{400: "Bad Request", 403: "Forbidden", 431: "Request Header Fields Too Large", 502: "Bad Gateway", 503: "Service Unavailable"}
	return append([]byte("HTTP/1.1 "+strconv.Itoa(r.status)+" "+words[r.status]+"\r\nContent-Type: application/json\r\nContent-Length: "+
		strconv.Itoa(len(body))+"\r\nConnection: close\r\n\r\n"), body...)
}
