package journal

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
)

// Reader reads single records and outputs of many tasks. It keeps files open until
// Close, and is for one goroutine.
type Reader struct {
	dir    func(worker uint32) string
	files  map[string]*os.File
	blocks map[uint32]block // of the results of each worker, the last one that was read
}

// block is a part of a file: the records of tasks that stand together do, too.
type block struct {
	from int64
	data []byte
}

// blockSize is how much of a file of results is read at once.
const blockSize = 512 * Size

// mostOpen is how many files a reader keeps open.
const mostOpen = 64

// NewReader reads where dir says that the files of a worker are.
func NewReader(dir func(worker uint32) string) *Reader {
	return &Reader{dir: dir, files: map[string]*os.File{}, blocks: map[uint32]block{}}
}

// Close closes its files.
func (r *Reader) Close() {
	for path, f := range r.files {
		_ = f.Close()
		delete(r.files, path)
	}
}

func (r *Reader) open(path string) (*os.File, error) {
	if f := r.files[path]; f != nil {
		return f, nil
	}
	if len(r.files) >= mostOpen {
		r.Close()
	}
	f, err := os.Open(path)
	if err == nil {
		r.files[path] = f
	}
	return f, err
}

// Record reads one record, see [Reader.Record].
func (f *Fold) Record(task uint32, dir func(uint32) string) (worker uint32, r *Record, err error) {
	in := NewReader(dir)
	defer in.Close()
	return in.Record(f, task)
}

// Record reads the record of a task that counts, and whose it is; nil is that there
// is none.
func (r *Reader) Record(f *Fold, task uint32) (worker uint32, rec *Record, err error) {
	e := f.tasks[task-1]
	if e.state == Waiting || e.state == Withdrawn {
		return 0, nil, nil
	}
	b, err := r.result(e.worker, int64(e.record)*Size)
	if err != nil {
		return 0, nil, err
	}
	got, ok := parse(b)
	if !ok || got.Task != task {
		return 0, nil, fmt.Errorf("%s: %w at byte %d", filepath.Join(r.dir(e.worker), ResultsFile), ErrDamaged, int64(e.record)*Size)
	}
	return e.worker, &got, nil
}

// result is the bytes of a record, valid until the next one is read.
func (r *Reader) result(worker uint32, at int64) ([]byte, error) {
	b, ok := r.blocks[worker]
	if i := at - b.from; ok && i >= 0 && i+Size <= int64(len(b.data)) {
		return b.data[i : i+Size], nil
	}
	file, err := r.open(filepath.Join(r.dir(worker), ResultsFile))
	if err != nil {
		return nil, err
	}
	if !ok && len(r.blocks) >= mostOpen {
		clear(r.blocks)
	}
	if b.data == nil {
		b.data = make([]byte, blockSize)
	}
	b.from = at
	n, err := file.ReadAt(b.data[:blockSize], at)
	b.data = b.data[:n]
	r.blocks[worker] = b
	if n < Size {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	return b.data[:Size], nil
}

// Frame is a piece of what a task has written.
type Frame struct {
	Stream Stream
	Data   []byte
}

// Output reads what a record's task has written, in the order of writing. A worker
// whose task wrote nothing has none.
func (r *Reader) Output(rec *Record, each func(Frame) error) error {
	places, err := r.places(rec, -1, nil)
	if err != nil {
		return err
	}
	for i := len(places) - 1; i >= 0; i-- {
		frame, err := r.frame(rec, places[i])
		if err != nil {
			return err
		}
		if err := each(frame); err != nil {
			return err
		}
	}
	return nil
}

// Tail reads the last bytes of the streams that a record's task has written, most of
// each. It looks at 64 frames.
func (r *Reader) Tail(rec *Record, most int, streams ...Stream) (map[Stream][]byte, error) {
	places, err := r.places(rec, 64, streams)
	if err != nil {
		return nil, err
	}
	out := map[Stream][]byte{}
	for _, at := range places { // the last one first
		frame, err := r.frame(rec, at)
		if err != nil {
			return nil, err
		}
		if have := out[frame.Stream]; len(have) < most {
			out[frame.Stream] = append(frame.Data[max(0, len(frame.Data)-(most-len(have))):len(frame.Data):len(frame.Data)], have...)
		}
	}
	return out, nil
}

// places are those of the frames of streams, all of them by default, the last one first;
// of so many frames, or of all if most is below 0.
func (r *Reader) places(rec *Record, most int, streams []Stream) ([]Place, error) {
	var places []Place
	for at := rec.Output; at != (Place{}) && most != 0; most-- {
		f, err := r.open(outputFile(r.dir(rec.Worker), at.File))
		if err != nil {
			return nil, err
		}
		h, err := head(f, rec.Task, at)
		if err != nil {
			return nil, err
		}
		wanted := len(streams) == 0
		for _, s := range streams {
			wanted = wanted || s == h.stream
		}
		if wanted {
			places = append(places, at)
		}
		if h.before != (Place{}) && !h.before.before(at) {
			return nil, fmt.Errorf("%s: %w at byte %d", f.Name(), ErrDamaged, at.Offset)
		}
		at = h.before
	}
	return places, nil
}

// frameHeader is what stands before the bytes of a frame.
type frameHeader struct {
	length int
	stream Stream
	before Place
}

func head(f *os.File, task uint32, at Place) (frameHeader, error) {
	var b [frameHead]byte
	if _, err := f.ReadAt(b[:], int64(at.Offset)); err != nil {
		return frameHeader{}, fmt.Errorf("%s: %w at byte %d: %w", f.Name(), ErrDamaged, at.Offset, err)
	}
	le := binary.LittleEndian
	h := frameHeader{int(le.Uint32(b[:])), Stream(b[14]), Place{le.Uint32(b[16:]), le.Uint64(b[20:])}}
	if h.length > MostFrame || le.Uint32(b[8:]) != task {
		return frameHeader{}, fmt.Errorf("%s: %w at byte %d", f.Name(), ErrDamaged, at.Offset)
	}
	return h, nil
}

func (r *Reader) frame(rec *Record, at Place) (Frame, error) {
	f, err := r.open(outputFile(r.dir(rec.Worker), at.File))
	if err != nil {
		return Frame{}, err
	}
	h, err := head(f, rec.Task, at)
	if err != nil {
		return Frame{}, err
	}
	b := make([]byte, frameHead+h.length)
	if _, err := f.ReadAt(b, int64(at.Offset)); err != nil || binary.LittleEndian.Uint32(b[4:]) != checksum(b[8:]) {
		return Frame{}, fmt.Errorf("%s: %w at byte %d", f.Name(), ErrDamaged, at.Offset)
	}
	return Frame{h.stream, b[frameHead:]}, nil
}
