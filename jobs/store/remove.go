package store

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/disk"
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
	if err := disk.SyncDir(shard); err != nil {
		return fail(err)
	}
	if err := disk.RemoveTree(gone); err != nil {
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
	_ = disk.RemoveTree(path)
}
