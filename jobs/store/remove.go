package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/jobs"
)

// What is being made and what is being removed stands beside the records,
// under names that no record has.
const (
	prefixNew  = ".new-"
	prefixGone = ".gone-"
)

// Remove deletes a job's record. The caller has made sure that it has ended.
// The directory is renamed first, so that a crash leaves no half record.
func (s *Store) Remove(r *jobs.Record) error {
	fail := func(err error) error {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "remove job " + jobs.Short(r.Spec.ID), Err: err}
	}
	dir := s.JobDir(r.Spec.ID)
	shard := filepath.Dir(dir)
	gone := filepath.Join(shard, prefixGone+r.Spec.ID)
	if err := moveDir(dir, gone); err != nil {
		return fail(err)
	}
	if err := syncDir(shard); err != nil {
		return fail(err)
	}
	if err := RemoveTree(gone); err != nil {
		return fail(err)
	}
	return nil
}

// leftFor is how old the remains of a killed process are before they are
// removed. It is far more than making or removing a record takes, and than
// clocks differ.
const leftFor = 24 * time.Hour

// sweep removes what a killed [Store.Create] or [Store.Remove] has left: the
// values of passed variables may be in it. What does not have exactly such a
// name was not made here and stays.
func sweep(dir, name string) {
	id, ok := strings.CutPrefix(name, prefixNew)
	if !ok {
		id, ok = strings.CutPrefix(name, prefixGone)
	}
	if !ok || !jobs.ValidID(id) {
		return
	}
	path := filepath.Join(dir, name)
	if fi, err := os.Lstat(path); err != nil || !fi.IsDir() || time.Since(fi.ModTime()) < leftFor {
		return
	}
	_ = RemoveTree(path)
}

// RemoveTree removes a directory that a task has written: tasks leave
// directories without write permission, and fuse-overlayfs leaves one of mode
// 000. Modes are opened up through an [os.Root], so that no symbolic link of
// the task's is followed out of the tree. A missing path is no error.
func RemoveTree(path string) error {
	err := os.RemoveAll(path)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	root, rerr := os.OpenRoot(filepath.Dir(path))
	if rerr != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	defer func() { _ = root.Close() }()
	openUp(root, filepath.Base(path))
	if err := root.RemoveAll(filepath.Base(path)); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// openUp gives the owner all rights on every directory below name, top down;
// what cannot be changed shows up when the removal fails.
func openUp(root *os.Root, name string) {
	fi, err := root.Lstat(name)
	if err != nil || !fi.IsDir() {
		return
	}
	if fi.Mode().Perm()&0o700 != 0o700 {
		_ = root.Chmod(name, 0o700)
	}
	d, err := root.Open(name)
	if err != nil {
		return
	}
	entries, _ := d.ReadDir(-1)
	_ = d.Close()
	for _, e := range entries {
		if e.IsDir() {
			openUp(root, filepath.Join(name, e.Name()))
		}
	}
}
