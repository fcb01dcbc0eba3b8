package transfer_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"berth/internal/link/transfer"
)

// BenchmarkPlainCopy is what the others are measured against.
func BenchmarkPlainCopy(b *testing.B) {
	from, size := bigFile(b)
	b.SetBytes(size)
	for b.Loop() {
		r, err := os.Open(from)
		must(b, err)
		w, err := os.Create(from + ".copy")
		must(b, err)
		_, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 256<<10))
		must(b, err)
		must(b, w.Close())
		r.Close()
	}
}

func BenchmarkPackBig(b *testing.B) {
	from, size := bigFile(b)
	b.SetBytes(size)
	for b.Loop() {
		_, err := transfer.Pack(b.Context(), io.Discard, from, transfer.Options{})
		must(b, err)
	}
}

func BenchmarkCopyBig(b *testing.B) {
	from, size := bigFile(b)
	b.SetBytes(size)
	for b.Loop() {
		through(b, from, from+".copy")
	}
}

func BenchmarkCopySmall(b *testing.B) {
	top := b.TempDir()
	const dirs, files = 20, 100
	for d := range dirs {
		for f := range files {
			write(b, fmt.Sprintf("%s/from/%d/%d", top, d, f), "some bytes", 0o644)
		}
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		through(b, top+"/from", fmt.Sprintf("%s/%d", top, n))
		n++
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*dirs*files), "us/file")
}

// through copies over a pipe.
func through(b *testing.B, from, to string) {
	r, w := io.Pipe()
	go func() {
		_, err := transfer.Pack(b.Context(), w, from, transfer.Options{})
		_ = w.CloseWithError(err)
	}()
	_, _, err := transfer.Unpack(b.Context(), r, to, transfer.Options{})
	must(b, err)
}

func bigFile(b *testing.B) (path string, size int64) {
	path, size = filepath.Join(b.TempDir(), "big"), 512<<20
	f, err := os.Create(path)
	must(b, err)
	chunk := make([]byte, 1<<20)
	for i := range chunk {
		chunk[i] = byte(i * 7)
	}
	for range size >> 20 {
		_, err = f.Write(chunk)
		must(b, err)
	}
	must(b, f.Close())
	return path, size
}
