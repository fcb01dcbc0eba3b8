package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestContinue: a task goes on from the work in progress of the attempts before
// it, and the result has all of it on top of the base.
func TestContinue(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a.txt": "1\n", "gone.txt": "x\n", ".gitignore": "*.o\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"a.txt": "2\n", "new.txt": "->a.txt", "run.sh": "+x#!/bin/sh\n", "left.o": "ignored\n"})
	must(t, os.Remove(filepath.Join(f.work(), "gone.txt")))
	first := f.collect(CollectOptions{})
	second := filepath.Join(filepath.Dir(f.attempt), "second")
	must(t, os.Mkdir(second, 0o700))
	p, err := f.g.Continue(testContext(t), f.src, second, filepath.Join(f.attempt, BundleFile), first.Commit)
	must(t, err)
	before := f.attempt
	f.attempt = second
	t.Cleanup(func() { must(t, Cleanup(before)) })
	if got := f.git(p.Work, "status", "--porcelain"); got != "" {
		t.Errorf("it begins with changes: %s", got)
	}
	if got := f.git(p.Work, "log", "--format=%H %P", "--max-count=1"); got != first.Commit+" "+f.src.Base {
		t.Errorf("it stands at %s", got)
	}
	f.write(f.work(), map[string]string{"b.txt": "3\n"})
	res := f.collect(CollectOptions{})
	same(t, "tree", f.tree(filepath.Join(f.attempt, GitDir), res.Commit), []string{"100644 .gitignore", "100644 a.txt", "100644 b.txt", "120000 new.txt", "100755 run.sh"})
	must(t, f.intake(res))
	if got := f.git(f.repo, "rev-parse", testBranch+"^"); got != f.src.Base {
		t.Errorf("the result's parent is %s", got)
	}
	third := filepath.Join(filepath.Dir(second), "third")
	must(t, os.Mkdir(third, 0o700))
	if _, err := f.g.Continue(testContext(t), f.src, third, filepath.Join(before, BundleFile), f.src.Base); !errors.Is(err, ErrRejected) {
		t.Errorf("from the base: %v", err)
	}
	if left, _ := os.ReadDir(third); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestCheckpoint: while files grow, a checkpoint has them as they were.
func TestCheckpoint(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"log": "1\n", "same": "x\n"})
	f.prepare()
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		log, err := os.OpenFile(filepath.Join(f.work(), "log"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = log.Close() }()
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = log.WriteString("more\n")
			}
		}
	})
	for n, name := range []string{"checkpoint-1.bundle", "checkpoint-2.bundle"} {
		res := f.collect(CollectOptions{Bundle: name})
		if res.Commit == "" {
			t.Errorf("%d: nothing had changed", n)
		}
		if _, err := os.Stat(filepath.Join(f.attempt, name)); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	writer.Wait()
	for _, name := range []string{BundleFile, ManifestFile, DiffFile} {
		if _, err := os.Stat(filepath.Join(f.attempt, name)); err == nil {
			t.Errorf("a checkpoint made %s", name)
		}
	}
}
