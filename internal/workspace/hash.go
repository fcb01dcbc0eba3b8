package workspace

import (
	"context"
	"crypto/sha1" // git's object ids, no secret
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"runtime"
	"sync"
)

// blobID is the id git gives a blob of n bytes.
func blobID(idLen int, r io.Reader, n int64) (string, error) {
	var h hash.Hash
	if idLen == 64 {
		h = sha256.New()
	} else {
		h = sha1.New()
	}
	h.Write(fmt.Appendf(nil, "blob %d\x00", n))
	if got, err := io.Copy(h, io.LimitReader(r, n)); err != nil {
		return "", err
	} else if got != n {
		return "", fmt.Errorf("changed while it was read: %w", io.ErrUnexpectedEOF)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// idOf is the id of the content of a file or link of the work tree.
func idOf(ctx context.Context, work *os.Root, f found, idLen int) (string, error) {
	content, n, err := contentOf(ctx, work, f)
	if err != nil {
		return "", err
	}
	defer content.Close()
	return blobID(idLen, content, n)
}

// hashed is a found path with its id, or why there is none.
type hashed struct {
	found
	id  string
	err error
}

// hashAll computes ids with a few files in flight: on a network file system
// the waiting adds up.
func hashAll(ctx context.Context, work *os.Root, files []found, idLen int) []hashed {
	out := make([]hashed, len(files))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(8, max(2, runtime.GOMAXPROCS(0)), len(files)) {
		wg.Go(func() {
			for i := range next {
				out[i] = hashed{found: files[i]}
				out[i].id, out[i].err = idOf(ctx, work, files[i], idLen)
			}
		})
	}
	for i := range files {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}
