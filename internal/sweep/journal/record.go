package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
)

// Kind is what a record says.
type Kind uint8

// The kinds of records.
const (
	Start   Kind = 1 // the task begins
	End     Kind = 2 // it has ended, and this is its result
	Adopted Kind = 3 // a result of a former holder of its batch, taken over
	// Tried is that it has ended, and is to run again: with the state of a result it has
	// failed, and is tried again for that; with [Waiting] it is not to blame.
	Tried Kind = 4
	Wrote Kind = 5 // it runs, and what it has written until now
)

// State is how a task ended.
type State uint8

// The states of a task. Those of results are above [Running].
const (
	Waiting  State = 0
	Running  State = 1
	OK       State = 2
	Failed   State = 3 // its exit code was not 0
	Killed   State = 4 // by a signal
	TimedOut State = 5
	NoStart  State = 6 // its program could not be started
	SetAside State = 7 // workers ended under it, too often
	// Withdrawn stands in no record: its round, or a later one, does not run it any more.
	Withdrawn State = 8
	// OverMemory is that it took more memory than its share, and was ended for that.
	OverMemory State = 9
	states     State = 10
)

var stateNames = [states]string{"waiting", "running", "ok", "failed", "killed", "timeout", "not started", "set aside", "withdrawn", "out of memory"}

// Result tells whether it is one of a result.
func (s State) Result() bool { return s > Running && s < states && s != Withdrawn }

// String is its name for people.
func (s State) String() string {
	if s < states {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Place is where a frame stands in a worker's output; the zero Place is nowhere.
type Place struct {
	File   uint32 // output.N
	Offset uint64
}

func (p Place) before(q Place) bool {
	return p.File < q.File || p.File == q.File && p.Offset < q.Offset
}

// Record is one of a worker's results.
type Record struct {
	Kind       Kind
	State      State
	Code       uint8 // exit code
	Signal     uint8
	Round      uint16
	Generation uint16
	Task       uint32 // its number, from 1
	Deaths     uint8  // workers that ended while it ran
	Tries      Tries  // failures after which it was tried again, this one among them
	Began      time.Time
	Took       time.Duration
	CPU        time.Duration // in steps of a millisecond
	Memory     int64         // most, in bytes, in steps of a KiB
	Worker     uint32        // whose output it is; of an adopted result another one's
	Output     Place         // its last frame
	MilliCPUs  uint32        // thousandths of a CPU that it had; 0 is not known
}

// Tries is how often a task was tried again in its round, by class.
type Tries struct {
	Task   uint8 `json:"task"`
	Memory uint8 `json:"memory"`
	Time   uint8 `json:"time"`
}

// Sum is how often that was.
func (t Tries) Sum() int { return int(t.Task) + int(t.Memory) + int(t.Time) }

// Size is how many bytes a record takes.
const Size = 64

// checksum is that of what a journal holds. Its table takes a fifth of a millisecond, and many that
// link this package start often and never need it.
func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli()) }

var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// append adds the record's bytes.
func (r Record) append(b []byte) []byte {
	at := len(b)
	b = append(b, byte(r.Kind), byte(r.State), r.Code, r.Signal)
	b = binary.LittleEndian.AppendUint16(b, r.Round)
	b = binary.LittleEndian.AppendUint16(b, r.Generation)
	b = binary.LittleEndian.AppendUint32(b, r.Task)
	b = append(b, r.Deaths, r.Tries.Task, r.Tries.Memory, r.Tries.Time)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Began.UnixNano()))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Took))
	b = binary.LittleEndian.AppendUint32(b, uint32(min(r.Memory>>10, 1<<32-1)))
	b = binary.LittleEndian.AppendUint32(b, uint32(min(r.CPU.Milliseconds(), 1<<32-1)))
	b = binary.LittleEndian.AppendUint32(b, r.Worker)
	b = binary.LittleEndian.AppendUint32(b, r.Output.File)
	b = binary.LittleEndian.AppendUint64(b, r.Output.Offset)
	b = binary.LittleEndian.AppendUint32(b, r.MilliCPUs)
	return binary.LittleEndian.AppendUint32(b, checksum(b[at:]))
}

// parse reads a record; false is that it is none.
func parse(b []byte) (Record, bool) {
	le := binary.LittleEndian
	if len(b) < Size || le.Uint32(b[60:]) != checksum(b[:60]) {
		return Record{}, false
	}
	r := Record{
		Kind: Kind(b[0]), State: State(b[1]), Code: b[2], Signal: b[3], Round: le.Uint16(b[4:]), Generation: le.Uint16(b[6:]),
		Task: le.Uint32(b[8:]), Deaths: b[12], Tries: Tries{b[13], b[14], b[15]},
		Began: time.Unix(0, int64(le.Uint64(b[16:]))).UTC(), Took: time.Duration(le.Uint64(b[24:])),
		Memory: int64(le.Uint32(b[32:])) << 10, CPU: time.Duration(le.Uint32(b[36:])) * time.Millisecond,
		Worker: le.Uint32(b[40:]), Output: Place{le.Uint32(b[44:]), le.Uint64(b[48:])}, MilliCPUs: le.Uint32(b[56:]),
	}
	return r, r.Kind >= Start && r.Kind <= Wrote && r.State < states && r.State != Withdrawn && r.Task > 0
}

// ErrDamaged is that a file of results has something else in its middle.
var ErrDamaged = errors.New("damaged")

// Read gives each whole record behind the first from bytes, and returns up to where
// it has read. What is cut off at the end is no error. A record that is none, with
// others behind it, is [ErrDamaged]: nothing behind it is read.
func Read(path string, from int64, each func(Record)) (to int64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return from, nil
	}
	if err != nil {
		return from, err
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return from, err
	}
	in := bufio.NewReaderSize(f, 1<<20)
	var b [Size]byte
	for to = from; ; to += Size {
		switch _, err := io.ReadFull(in, b[:]); {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return to, nil
		case err != nil:
			return to, err
		}
		r, ok := parse(b[:])
		if !ok {
			// The last one may be just being written, on a file system that
			// shows the size before the bytes.
			if _, err := in.Peek(1); errors.Is(err, io.EOF) {
				return to, nil
			}
			return to, fmt.Errorf("%s: %w at byte %d", path, ErrDamaged, to)
		}
		each(r)
	}
}
