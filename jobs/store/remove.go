package store

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/failpoint"
	"berth/jobs"
)

// What is being made and what is being removed stands beside the records,
// under names that no record has.
const (
	prefixNew  = ".new-"
	prefixGone = ".gone-"
)

// Remove deletes a job's record. The caller has made sure that it has ended.
// The directory is renamed first, so that a crash leaves no half record. The
// idempotency key that it was submitted under goes with it, and after it: a key
// without its job makes that very job, a job without its key could be doubled.
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
	failpoint.Hit("remove.renamed")
	if err := disk.SyncDir(shard); err != nil {
		return fail(err)
	}
	failpoint.Hit("remove.synced")
	if err := s.forget(r.Spec.Key, r.Spec.ID); err != nil {
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
	const uuid = 36
	if len(id) > uuid && id[uuid] == '-' { // and random digits
		id = id[:uuid]
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

// sweepTemp removes what was left in a directory of the ledger: by [CreateOnce] a
// file, by [Begin] and [TakeBack] an attempt, and a schedule. Nothing else has such
// names there.
func sweepTemp(dir, name string) {
	if !strings.HasPrefix(name, prefixNew) && !strings.HasPrefix(name, prefixGone) {
		return
	}
	path := filepath.Join(dir, name)
	fi, err := os.Lstat(path)
	if err != nil || time.Since(fi.ModTime()) < leftFor {
		return
	}
	if base := filepath.Base(dir); fi.IsDir() && base != dirAttempts && base != dirSchedules {
		return
	}
	_ = disk.RemoveTree(path)
}

// dirSchedules is where the schedules are, each a directory.
const dirSchedules = "schedules"

// SweepAll removes what killed processes have left of the ledger's files, a day
// after that. Listings do so where they look; this looks everywhere.
func (s *Store) SweepAll() error {
	ids, err := s.ids("")
	dirs := []string{s.Bin()}
	names, _ := readNames(s.Envs())
	for _, name := range names {
		sweep(s.Envs(), name)
	}
	for _, id := range ids {
		dir := s.JobDir(id)
		dirs = append(dirs, dir, filepath.Join(dir, dirAttempts), filepath.Join(dir, dirReview))
		_, _ = scan(dir) // looks into the attempts
	}
	keys, _ := filepath.Glob(filepath.Join(s.home, "keys", "*", "*"))
	dirs = append(dirs, filepath.Join(s.home, dirSchedules))
	for _, dir := range append(dirs, keys...) {
		names, err := readNames(dir)
		if err != nil {
			continue // removed meanwhile, or said where it is listed
		}
		for _, name := range names {
			sweepTemp(dir, name)
		}
	}
	return err
}

// Remains lists what [Store.SweepAll] removes. It is to be asked before anything
// lists the jobs, which removes a part of it.
func (s *Store) Remains() (found []string) {
	for _, pattern := range []string{"jobs/*/", "jobs/*/*/", "jobs/*/*/attempts/", "jobs/*/*/attempts/*/", "jobs/*/*/review/", "bin/", "keys/*/*/",
		"schedules/", "envs/"} {
		for _, prefix := range []string{prefixNew, prefixGone} {
			paths, _ := filepath.Glob(filepath.Join(s.home, pattern+prefix+"*"))
			for _, path := range paths {
				if fi, err := os.Lstat(path); err == nil && time.Since(fi.ModTime()) >= leftFor {
					found = append(found, path)
				}
			}
		}
	}
	return found
}
