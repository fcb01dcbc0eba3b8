//go:build linux

package staging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/images"
	"berth/test/fakes/siftest"

	"github.com/google/uuid"
)

// A process of this test that stages by itself: its words are what to do, the
// directory, the image, its SHA-256, and the form.
const variable = "BERTH_TEST_STAGER"

func TestMain(m *testing.M) {
	if words := os.Getenv(variable); words != "" {
		os.Exit(stager(strings.Split(words, "|")))
	}
	os.Exit(m.Run())
}

// stager stages, says "staged PATH", and holds the copy until its stdin closes.
func stager(words []string) int {
	n := node(words[1])
	if words[0] == "hang" {
		n.Unpack = func(_ context.Context, _, root, _ string) error {
			if err := os.Mkdir(root, 0o755); err != nil {
				return err
			}
			fmt.Println("half made")
			select {}
		}
	}
	c, err := n.Stage(context.Background(), Image{Path: words[2], Sum: words[3]}, Form(words[4]), "/x")
	if err != nil {
		fmt.Println("failed", err)
		return 1
	}
	fmt.Println("staged", c.Path, c.Reused)
	_, _ = os.Stdin.Read(make([]byte, 1))
	if err := c.Close(); err != nil {
		return 1
	}
	return 0
}

// node is one whose images are unpacked into a file "unpacked", which takes a
// moment, and a line is written for each time.
func node(dir string) *Node {
	return &Node{Dir: dir, Progress: func(string) {}, Verify: func(ctx context.Context, path, sum string) error {
		got, err := images.Sum(ctx, path)
		if err == nil && got != sum {
			err = errors.New("another content")
		}
		return err
	}, Unpack: func(_ context.Context, sif, root, _ string) error {
		f, err := os.OpenFile(filepath.Join(filepath.Dir(dir), "unpackings"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintln(f, sif)
		_ = f.Close()
		if err := os.Mkdir(root, 0o755); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
		return os.WriteFile(filepath.Join(root, "unpacked"), []byte(sif), 0o600)
	}}
}

func unpackings(t *testing.T, n *Node) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(n.Dir), "unpackings"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

// child is a process that stages.
type child struct {
	*exec.Cmd
	out   *os.File
	in    *os.File
	lines chan string
}

func start(t *testing.T, what string, n *Node, img Image, form Form) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(os.Args[0]), lines: make(chan string, 16)}
	c.Env = append(os.Environ(), variable+"="+strings.Join([]string{what, n.Dir, img.Path, img.Sum, string(form)}, "|"))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr, c.Stdin, c.out, c.in = w, os.Stderr, inR, r, inW
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Close(), inR.Close()
	go func() {
		defer close(c.lines)
		buf, text := make([]byte, 4096), ""
		for {
			n, err := r.Read(buf)
			text += string(buf[:n])
			for {
				line, rest, ok := strings.Cut(text, "\n")
				if !ok {
					break
				}
				c.lines <- line
				text = rest
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait(); _ = r.Close(); _ = inW.Close() })
	return c
}

// says waits for the next line of a child.
func (c *child) says(t *testing.T) string {
	t.Helper()
	select {
	case line := <-c.lines:
		return line
	case <-time.After(5 * time.Minute):
		t.Fatal("it said nothing")
	}
	return ""
}

// end lets a child give back what it has.
func (c *child) end(t *testing.T) {
	t.Helper()
	_ = c.in.Close()
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}

// sif writes an image whose squashfs is said to be so long and to have so many
// inodes.
func sif(t *testing.T, path string, packed int64, inodes uint32, content string) Image {
	t.Helper()
	b := siftest.New(uuid.NewSHA1(uuid.Nil, []byte(filepath.Base(path))), append(siftest.Superblock(inodes, uint64(packed)), content...))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	sum, err := images.Sum(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return Image{Path: path, Sum: sum}
}

// fresh is an empty place for copies, and an image.
func fresh(t *testing.T) (*Node, Image) {
	t.Helper()
	dir := t.TempDir()
	n := node(filepath.Join(dir, "copies"))
	if err := os.Mkdir(n.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	n.Free = func(string) (Room, error) { return Room{Bytes: 1 << 40, Inodes: 1 << 30, Total: 1 << 40}, nil }
	return n, sif(t, filepath.Join(dir, "base.sif"), 1<<20, 100, "the image")
}

func stage(t *testing.T, n *Node, img Image, form Form) *Copy {
	t.Helper()
	c, err := n.Stage(t.Context(), img, form, "/x")
	if err != nil {
		t.Fatal(err)
	}
	return c
}
