package claims

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"
)

// kind is what a claim says of its batch.
type kind string

const (
	held   kind = "held"   // its worker runs it
	free   kind = "free"   // its worker has given it back
	closed kind = "closed" // every task has a result
	split  kind = "split"  // its worker keeps the tasks below At, the others are free
)

// claim is the content of a file.
type claim struct {
	Version int    `json:"version"`
	Kind    kind   `json:"kind"`
	Worker  uint32 `json:"worker"`
	At      uint32 `json:"at,omitempty"`
	Nonce   string `json:"nonce"` // of its maker's board, which knows its own by it where a reply was lost
}

// Batch is a range of the tasks of a round, by their place in it, from 1.
type Batch struct{ Lo, Hi uint32 }

func (b Batch) name() string { return fmt.Sprintf("%d-%d", b.Lo, b.Hi) }

// Size is how many tasks it has.
func (b Batch) Size() int { return int(b.Hi - b.Lo + 1) }

// shardSize is how many batches have a directory together. With three names for each
// (two where it was split, and three of its parts), and those of batches that were
// taken over, it has less than 1,000.
const shardSize = 200

// closedEnd is the end of a second name that a closed claim gets where its batch is
// whole: LO-HI.N.closed. By it the list of a shard tells which batches are over, and no
// claim of theirs is read: there may be thousands, each a file of its own on a server.
// It decides nothing. It is made behind the claim, so it says what is so, and nothing
// ever comes after a closed claim; where it is missing, the claims are read.
const closedEnd = ".closed"

// Round is the batches of a round, the same for every process.
type Round struct {
	Dir   string // claims/N of the sweep
	Tasks int
	Batch int // tasks in each
}

func (r Round) batches() int { return (r.Tasks + r.Batch - 1) / r.Batch }

// MostFiles is how many files the claims of so many workers are at most, of batches that are not
// split nor taken over: what a worker claims and closes in a shard has two, of many names.
func (r Round) MostFiles(workers int) int {
	shards := (r.batches() + shardSize - 1) / shardSize
	return 2 * min(r.batches(), workers*shards)
}

func (r Round) batch(i int) Batch {
	return Batch{uint32(i*r.Batch + 1), uint32(min((i+1)*r.Batch, r.Tasks))}
}

func (r Round) shard(n int) string { return filepath.Join(r.Dir, fmt.Sprintf("%03d", n)) }

// Board is how a worker sees a round. Next is for one goroutine; what was claimed may be
// given back and closed by others meanwhile.
type Board struct {
	round Round
	me    uint32
	gone  func(worker uint32) bool
	over  map[int]bool // batches with nothing left: that never changes
	nonce string
	file  func(path string, most int64) ([]byte, error) // reads a claim

	mu    sync.Mutex
	known map[string]claim // what stands in files: it never changes
	mine  map[Batch]int    // the last generation of each that this worker knows to be its own
	made  map[alike]string // a claim of this worker's, of which another one may be a second name
}

// alike are claims of one directory with the same content.
type alike struct{ dir, text string }

// New is the board of a worker, which is told whether another one is gone.
func New(r Round, me uint32, gone func(worker uint32) bool) *Board {
	return &Board{round: r, me: me, gone: gone, nonce: rand.Text(), file: disk.ReadRegular,
		known: map[string]claim{}, over: map[int]bool{}, mine: map[Batch]int{}, made: map[alike]string{}}
}

// Held is a batch that this worker has.
type Held struct {
	Batch
	Generation int
	// Former are the workers that had it before, or had what it was split off,
	// whose results count.
	Former []uint32
	board  *Board
	shard  string
}

// leaf is a batch that is not split, with its last claim; number 0 is none.
type leaf struct {
	batch  Batch
	number int
	last   claim
	former []uint32
}

// Next claims a batch, looking from number from on: workers that begin at different
// places seldom meet. Without one that can be had it returns nil, and how many are
// still held by others.
func (b *Board) Next(from int) (h *Held, open int, err error) {
	if b.round.batches() == 0 {
		return nil, 0, nil
	}
	h, open, unread, err := b.look(from, fewReads)
	if h == nil && unread > 0 && err == nil {
		h, open, _, err = b.look(from, b.round.batches())
	}
	return h, open, err
}

// fewReads is how many first claims of others a look for a batch reads, while it may yet
// find one that is free. What has a first claim alone is held, whoever has made it: that
// is read to learn whether its worker is gone. Where many workers come to the same
// batches in the end, each would else read what all others have, again and again.
const fewReads = 4

// look is one for a batch that reads so many first claims at most; unread is how many it
// has left, which count as open.
func (b *Board) look(from, reads int) (h *Held, open, unread int, err error) {
	n := b.round.batches()
	var names listing
	listed := -1
	for k := range n {
		i := (from%n + k) % n
		if b.over[i] {
			continue
		}
		if s := i / shardSize; s != listed {
			if names, err = b.list(s); err != nil {
				return nil, 0, 0, err
			}
			listed = s
		}
		if names.over(b.round.batch(i)) {
			b.over[i] = true
			continue
		}
		if names.last[b.round.batch(i).name()] == 1 && !b.knows(b.round.batch(i), listed) {
			if reads == 0 {
				open++
				unread++
				continue
			}
			reads--
		}
		left, err := b.leaves(names, b.round.shard(listed), leaf{batch: b.round.batch(i)})
		if err != nil {
			return nil, 0, 0, err
		}
		busy := 0
		for _, l := range left {
			if l.last.Kind == closed {
				continue
			}
			busy++
			h, err := b.take(l, b.round.shard(listed))
			if h != nil || err != nil {
				return h, 0, 0, err
			}
		}
		if busy == 0 {
			b.over[i] = true
		}
		open += busy
	}
	return nil, open, unread, nil
}

// knows tells whether the first claim of a batch was read.
func (b *Board) knows(x Batch, shard int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.known[filepath.Join(b.round.shard(shard), x.name()+".1")]
	return ok
}

// Holders are the workers that have, or had, batches of the first shard.
func (b *Board) Holders() ([]uint32, error) {
	names, err := b.list(0)
	if err != nil {
		return nil, err
	}
	var all []uint32
	for name, last := range names.last {
		for n := 1; n <= last; n++ {
			c, err := b.read(filepath.Join(b.round.shard(0), fmt.Sprintf("%s.%d", name, n)))
			if err != nil {
				return nil, err
			}
			if c.Kind == held {
				all = append(all, c.Worker)
			}
		}
	}
	return all, nil
}

// listing is what the names in a shard tell.
type listing struct {
	last   map[string]int // the highest number of each batch
	closed map[string]int // which one is closed; 0 is not known
}

// over tells whether a batch is known to be closed. A second name that outlives its
// claim, as where that was removed by hand, does not count.
func (l listing) over(b Batch) bool {
	n := l.closed[b.name()]
	return n > 0 && n == l.last[b.name()]
}

// list reads the names in a shard.
func (b *Board) list(shard int) (listing, error) {
	names := listing{map[string]int{}, map[string]int{}}
	dir := b.round.shard(shard)
	entries, err := namesIn(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return names, err
		}
		return names, disk.SyncDir(b.round.Dir)
	}
	if err != nil {
		return names, err
	}
	for _, e := range entries {
		claim, second := strings.CutSuffix(e, closedEnd)
		name, number, ok := strings.Cut(claim, ".")
		if n, err := strconv.Atoi(number); ok && err == nil && name != "" && n > 0 {
			of := names.last
			if second {
				of = names.closed
			}
			of[name] = max(of[name], n)
		}
	}
	return names, nil
}

// namesIn lists a directory by its names alone. [os.ReadDir] asks for each entry what it
// is where the listing does not say so, as that of sshfs: hundreds of calls.
func namesIn(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return d.Readdirnames(-1)
}

// leaves are the batches that a batch was split into, or itself.
func (b *Board) leaves(names listing, dir string, l leaf) ([]leaf, error) {
	last := max(names.last[l.batch.name()], l.number)
	for n := l.number + 1; n <= last; n++ {
		c, err := b.read(filepath.Join(dir, fmt.Sprintf("%s.%d", l.batch.name(), n)))
		if err != nil {
			return nil, err
		}
		if c.Kind == held {
			l.former = append(l.former[:len(l.former):len(l.former)], c.Worker)
		}
		l.number, l.last = n, c
	}
	if l.last.Kind != split {
		return []leaf{l}, nil
	}
	if l.last.At <= l.batch.Lo || l.last.At > l.batch.Hi {
		return nil, b.damaged(dir, l, "it is split where it cannot be")
	}
	kept, rest := l, l
	kept.batch.Hi, kept.last.Kind = l.last.At-1, held
	rest.batch.Lo, rest.last.Kind = l.last.At, free
	first, err := b.leaves(names, dir, kept)
	if err != nil {
		return nil, err
	}
	second, err := b.leaves(names, dir, rest)
	return append(first, second...), err
}

func (b *Board) damaged(dir string, l leaf, why string) error {
	return &jobs.Error{Kind: jobs.KindInfra,
		Msg:  fmt.Sprintf("the claim %s is damaged: %s", filepath.Join(dir, fmt.Sprintf("%s.%d", l.batch.name(), l.number)), why),
		Hint: "berth writes no such claim: look at it, and at who else writes there"}
}

// mostClaim bounds the bytes of a claim.
const mostClaim = 4096

func (b *Board) read(path string) (claim, error) {
	b.mu.Lock()
	known, ok := b.known[path]
	b.mu.Unlock()
	if ok {
		return known, nil
	}
	text, err := b.file(path, mostClaim)
	if err != nil {
		return claim{}, fmt.Errorf("read the claim %s: %w", path, err)
	}
	var c claim
	if err := json.Unmarshal(text, &c); err != nil || c.Kind != held && c.Kind != free && c.Kind != closed && c.Kind != split {
		return claim{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "the claim " + path + " is damaged", Err: err,
			Hint: "berth writes no such claim: look at it, and at who else writes there"}
	}
	b.mu.Lock()
	b.known[path] = c
	b.mu.Unlock()
	return c, nil
}

// take claims a batch if it may.
func (b *Board) take(l leaf, dir string) (*Held, error) {
	h := &Held{Batch: l.batch, Generation: l.number + 1, Former: l.former, board: b, shard: dir}
	switch {
	case l.number == 0, l.last.Kind == free:
	case l.last.Kind == held && l.last.Worker == b.me:
		if !b.hold(l.batch, l.number) {
			return nil, nil // or it was closed since this look
		}
		h.Generation = l.number // its making was never heard of
		return h, nil
	case l.last.Kind == held && b.gone(l.last.Worker):
	default:
		return nil, nil
	}
	won, err := h.make(claim{Kind: held}, h.Generation)
	if err != nil || !won {
		return nil, err
	}
	if !b.hold(l.batch, h.Generation) {
		return nil, nil // it has had it: the list was older than that
	}
	return h, nil
}

// hold notes that a generation of a batch is this worker's; false is that it knows.
func (b *Board) hold(x Batch, generation int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if generation <= b.mine[x] {
		return false
	}
	b.mine[x] = generation
	return true
}

func (h *Held) path(n int) string { return filepath.Join(h.shard, fmt.Sprintf("%s.%d", h.name(), n)) }

// make makes number n of the batch's chain, and tells whether this worker did.
func (h *Held) make(c claim, n int) (won bool, err error) {
	b := h.board
	c.Version, c.Worker, c.Nonce = 1, b.me, b.nonce
	data, err := json.Marshal(c)
	if err != nil {
		return false, err
	}
	data = append(data, '\n')
	path := h.path(n)
	same := alike{h.shard, string(data)}
	b.mu.Lock()
	before := b.made[same]
	b.mu.Unlock()
	// What says the same, of the same worker, is a second name of what it has synced
	// before. Which of two makes a number link(2) decides as ever, and after any error
	// the content, which no other worker's claim has.
	if before != "" && os.Link(before, path) == nil {
		won = true
		// A closed claim that a crash takes back leaves one that is held by a worker
		// that is no more: whoever takes that over finds the results, which were synced.
		if c.Kind != closed {
			err = disk.SyncDir(h.shard)
		}
	} else {
		won, err = store.CreateOnce(path, data)
	}
	if won {
		b.mu.Lock()
		b.known[path] = c
		b.made[same] = path
		b.mu.Unlock()
	}
	return won, err
}

// after makes the claim that ends this holding. lost is that another worker has
// taken the batch over.
func (h *Held) after(c claim) (lost bool, err error) {
	won, err := h.make(c, h.Generation+1)
	return !won && err == nil, err
}

// Close says that every task of the batch has a result, and these are durable. When
// lost, the batch is another worker's, and that one's results count.
func (h *Held) Close() (lost bool, err error) {
	lost, err = h.after(claim{Kind: closed})
	if r := h.board.round; !lost && err == nil && r.batch(int(h.Lo-1)/r.Batch) == h.Batch {
		n := h.Generation + 1
		_ = os.Link(h.path(n), h.path(n)+closedEnd) // others read the claims where it fails
	}
	return lost, err
}

// Release gives the batch back.
func (h *Held) Release() (lost bool, err error) { return h.after(claim{Kind: free}) }

// Split keeps the tasks below at, and gives the others back. The batch is the kept
// part then, of the next generation. What its worker records of that part may have the
// generation of before: none came between.
func (h *Held) Split(at uint32) (lost bool, err error) {
	if at <= h.Lo || at > h.Hi {
		return false, fmt.Errorf("split %s at %d", h.name(), at)
	}
	// Before it can be seen: a look for a batch would else take it for a claim of this
	// worker's that it never heard of.
	h.board.hold(Batch{h.Lo, at - 1}, h.Generation+1)
	if lost, err = h.after(claim{Kind: split, At: at}); lost || err != nil {
		return lost, err
	}
	h.Hi = at - 1
	h.Generation++
	return false, nil
}
