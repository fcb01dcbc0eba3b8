package images

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/jobs"
)

// Many ask for one image at once, under two names: it is fetched once.
func TestOneDownload(t *testing.T) {
	s, c := serve(t), cache(t)
	digest := s.push(t, "a/b:1")
	c.Resolve = s.resolver()
	refs := []string{"docker://" + s.host + "/a/b:1", "docker://" + s.host + "/a/b@" + digest}
	c.Resolve = resolver(func(Name) (string, error) { return digest, nil })
	var wg sync.WaitGroup
	sums := make([]string, 8)
	for i := range sums {
		wg.Go(func() {
			mine := *c
			img, err := mine.Get(t.Context(), refs[i%2])
			if err != nil {
				t.Error(err)
			}
			sums[i] = img.Sum
		})
	}
	wg.Wait()
	if n := s.blobs.Load(); n != layers {
		t.Errorf("%d layers were fetched, of %d", n, layers)
	}
	for _, sum := range sums {
		if sum != sums[0] || sum == "" {
			t.Errorf("%q and %q", sum, sums[0])
		}
	}
	list, err := c.List()
	if err != nil || len(list) != 1 || len(list[0].Names) != 2 || list[0].Digest != digest || c.Verify(t.Context(), list[0]) != nil {
		t.Errorf("%+v, %v", list, err)
	}
	fi, err := os.Stat(list[0].Path)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	for _, word := range append(refs, digest, list[0].Sum[:8], "sha256:"+list[0].Sum) {
		if img, err := c.Find(word); err != nil || img.Sum != list[0].Sum {
			t.Errorf("%s: %v", word, err)
		}
	}
	if _, err := c.Find(list[0].Sum[:7]); jobs.CodeOf(err) != jobs.CodeNotFound {
		t.Error(err)
	}
}

// A tag moves: the next one gets the new content, and the old one stays.
func TestTagMoves(t *testing.T) {
	s, c := serve(t), cache(t)
	c.Resolve = s.resolver()
	ref := "docker://" + s.host + "/a:1"
	was := s.push(t, "a:1")
	first, err := c.Get(t.Context(), ref)
	must(t, err)
	now := s.push(t, "a:1")
	second, err := c.Get(t.Context(), ref)
	must(t, err)
	if first.Digest != was || second.Digest != now || first.Sum == second.Sum {
		t.Errorf("%+v, %+v", first, second)
	}
	if known, err := c.Known(ref); err != nil || known.Sum != second.Sum {
		t.Error(err)
	}
	if err := c.Verify(t.Context(), first); err != nil {
		t.Error(err)
	}
	c.Offline, c.Resolve = true, nil
	s.instead(func(http.ResponseWriter, *http.Request) bool { t.Error("a registry was asked"); return false })
	if img, err := c.Get(t.Context(), ref); err != nil || img.Sum != second.Sum {
		t.Error(err)
	}
	if _, err := c.Get(t.Context(), "docker://"+s.host+"/other:1"); jobs.CodeOf(err) != jobs.CodeNotFound || jobs.HintOf(err) == "" {
		t.Error(err)
	}
}

// Registries that fail while layers are fetched: nothing is kept, and the error
// says what to do.
func TestFaults(t *testing.T) {
	for name, k := range map[string]struct {
		answer func(w http.ResponseWriter)
		code   int
		tries  int32
	}{
		"rate limit": {func(w http.ResponseWriter) { w.WriteHeader(429) }, jobs.CodeAgain, 4},
		"no login":   {func(w http.ResponseWriter) { w.WriteHeader(401) }, jobs.CodeAuth, 1},
		"gone":       {func(w http.ResponseWriter) { w.WriteHeader(404) }, jobs.CodeNotFound, 1},
		"broken":     {func(w http.ResponseWriter) { w.WriteHeader(500) }, jobs.CodeInfra, 4},
		"mid-layer": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "5000")
			_, _ = w.Write(make([]byte, 100))
		}, jobs.CodeInfra, 4},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := serve(t), cache(t)
			c.Resolve = s.resolver()
			s.push(t, "a:1")
			var mu sync.Mutex
			var n int32
			s.instead(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, "/blobs/") {
					return false
				}
				mu.Lock()
				n++
				mu.Unlock()
				k.answer(w)
				return true
			})
			ref := "docker://" + s.host + "/a:1"
			_, err := c.Get(t.Context(), ref)
			if jobs.CodeOf(err) != k.code || jobs.HintOf(err) == "" || !strings.Contains(err.Error(), ref) {
				t.Errorf("code %d, %v", jobs.CodeOf(err), err)
			}
			if n != k.tries {
				t.Errorf("tried %d times", n)
			}
			if list, err := c.List(); len(list) > 0 || err != nil {
				t.Errorf("%v, %v", list, err)
			}
			s.instead(func(http.ResponseWriter, *http.Request) bool { return false })
			if _, err := c.Get(t.Context(), ref); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

func TestHostile(t *testing.T) {
	s, c := serve(t), cache(t)
	s.push(t, "a:1")
	ref := "docker://" + s.host + "/a:1"
	for _, digest := range []string{"", "sha256:../../../../tmp/x", "sha256:abc", "md5:00", "sha256:" + strings.Repeat("g", 64)} {
		c.Resolve = resolver(func(Name) (string, error) { return digest, nil })
		if _, err := c.Get(t.Context(), ref); jobs.CodeOf(err) != jobs.CodeInfra || !strings.Contains(err.Error(), "which is none") {
			t.Errorf("%q: %v", digest, err)
		}
	}
	if s.blobs.Load() != 0 {
		t.Error("something was fetched")
	}
	for _, ref := range []string{"docker://", "docker://a b", "docker://../../x", "docker://x@sha256:0", "docker://-x", "docker://h:99999999/x", "docker://x:" + strings.Repeat("t", 129),
		"docker://" + strings.Repeat("x", 300), "docker://x\nY", "docker://user:pw@host/x", "docker://x?y", "docker://x/../y", "x.sif", "-x", "../x"} {
		if _, err := Settle(ref); jobs.CodeOf(err) != jobs.CodeUsage || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

// A puller is killed with SIGKILL in the middle of a layer; who waits for it
// takes over.
func TestTakeover(t *testing.T) {
	s, c := serve(t), cache(t)
	s.push(t, "a:1")
	ref := "docker://" + s.host + "/a:1"
	hang, began := make(chan struct{}), make(chan struct{}, 9)
	s.instead(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		began <- struct{}{}
		select {
		case <-hang:
		case <-r.Context().Done():
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	exe, err := os.Executable()
	must(t, err)
	first := exec.CommandContext(t.Context(), exe, c.Dir, ref)
	first.Env = append(os.Environ(), "IMAGES_TEST=get")
	errs, err := first.StderrPipe()
	must(t, err)
	must(t, first.Start())
	select {
	case <-began:
	case <-time.After(5 * time.Minute):
		t.Fatal("the first puller does not begin")
	}
	said := make(chan string, 9)
	second := *c
	second.Progress = func(line string) { said <- line }
	got := make(chan error, 1)
	go func() {
		img, err := second.Get(t.Context(), ref)
		if err == nil {
			err = second.Verify(t.Context(), img)
		}
		got <- err
	}()
	if line := <-said; !strings.Contains(line, fmt.Sprintf("process %d ", first.Process.Pid)) {
		t.Errorf("%q", line)
	}
	s.instead(func(http.ResponseWriter, *http.Request) bool { return false })
	must(t, first.Process.Kill())
	close(hang)
	_, _ = bufio.NewReader(errs).ReadString(0) // its program ends, too
	var exit *exec.ExitError
	if err := first.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Errorf("the first puller: %v", err)
	}
	select {
	case err := <-got:
		must(t, err)
	case <-time.After(5 * time.Minute):
		t.Fatal("nobody takes over")
	}
	if n := s.blobs.Load(); n != layers {
		t.Errorf("%d layers", n)
	}
	if left, _ := filepath.Glob(filepath.Join(c.Dir, "pulls", "*", "beat-*")); len(left) > 1 {
		t.Errorf("left: %v", left)
	}
}

// What is in the cache is looked at before it is used.
func TestDamaged(t *testing.T) {
	s, c := serve(t), cache(t)
	c.Resolve = s.resolver()
	s.push(t, "a:1")
	ref := "docker://" + s.host + "/a:1"
	img, err := c.Get(t.Context(), ref)
	must(t, err)
	whole, err := os.ReadFile(img.Path)
	must(t, err)
	bad := append([]byte{}, whole...)
	bad[len(bad)-1] ^= 1
	must(t, os.WriteFile(img.Path, bad, 0o600))
	if err := c.Verify(t.Context(), img); jobs.CodeOf(err) != jobs.CodeConfig || jobs.HintOf(err) == "" {
		t.Errorf("a changed byte: %v", err)
	}
	for name, b := range map[string][]byte{"truncated": whole[:len(whole)-1], "header only": whole[:100], "empty": nil} {
		must(t, os.WriteFile(img.Path, b, 0o600))
		if _, err := c.Have(img.Sum); jobs.CodeOf(err) != jobs.CodeConfig {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Whole(img.Path); jobs.CodeOf(err) != jobs.CodeConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
	if again, err := c.Get(t.Context(), ref); err != nil || c.Verify(t.Context(), again) != nil {
		t.Errorf("it is fetched again: %v", err)
	}
	must(t, os.Remove(img.Path))
	must(t, os.Symlink("/etc/passwd", img.Path))
	if _, err := c.Have(img.Sum); jobs.CodeOf(err) != jobs.CodeConfig {
		t.Errorf("a symbolic link: %v", err)
	}
}

// An archive is known by the SHA-256 that it had: one that is replaced while it
// is read does not get that name.
func TestArchive(t *testing.T) {
	c := cache(t)
	file := filepath.Join(t.TempDir(), "saved.tar")
	must(t, os.WriteFile(file, []byte("one"), 0o600))
	img, err := c.Get(t.Context(), "docker-archive:"+file)
	must(t, err)
	sum, err := Sum(t.Context(), file)
	if err != nil || img.Digest != "sha256:"+sum {
		t.Errorf("%+v, %v", img, err)
	}
	for i := range 2 {
		must(t, os.WriteFile(file, []byte("SWAP"), 0o600))
		c.Sleep = func(context.Context, time.Duration) { must(t, os.WriteFile(file, []byte("SWAP"), 0o600)) } // and again
		_, err = c.Get(t.Context(), "docker-archive:"+file)
		if jobs.CodeOf(err) != jobs.CodeAgain || !strings.Contains(err.Error(), "changed while it was read") {
			t.Errorf("%d: %v", i, err)
		}
	}
	if list, err := c.List(); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}
