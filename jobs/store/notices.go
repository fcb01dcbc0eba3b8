package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// Notices of one label: which jobs are still to be told of, and what was sent.
// NAME.open stands for a job until all ways have told of it; NAME.WAY is created once
// by whoever sends, of the youngest job that is told of, and NAME.WAY.failed is written
// by the same process when it could not be sent.
const (
	dirNotices  = "notices"
	noLabel     = "-" // of jobs without one; no label is called so
	extOpen     = ".open"
	extFailed   = ".failed"
	noticesKept = 30 * 24 * time.Hour
)

// Group is what is known of the notices of a label.
type Group struct {
	Label string
	dir   string
	// Open are the ids of the jobs that are still to be told of, oldest first.
	Open []string
	// last is the youngest job that each way has told of.
	last map[string]string
}

// noticeSent is NAME.WAY; its content differs for each who writes one.
type noticeSent struct {
	Version int       `json:"version"`
	Jobs    int       `json:"jobs"`
	By      string    `json:"by"`
	Time    time.Time `json:"time"`
}

// noticeFailed is NAME.WAY.failed.
type noticeFailed struct {
	Version int       `json:"version"`
	Reason  string    `json:"reason"`
	Time    time.Time `json:"time"`
}

func (s *Store) noticeDir(label string) string {
	if label == "" {
		label = noLabel
	}
	return filepath.Join(s.home, dirNotices, label)
}

// AwaitNotices records that a job is to be told of when it and all others of its
// labels have ended.
func (s *Store) AwaitNotices(spec *jobs.Spec) error {
	if len(spec.Notify.Ways()) == 0 {
		return nil
	}
	for _, label := range spec.NoticeGroups() {
		dir := s.noticeDir(label)
		err := fs.ErrNotExist
		for tries := 0; errors.Is(err, fs.ErrNotExist) && tries < 3; tries++ { // an old directory may be swept in between
			if err = makeDir(dir); err == nil {
				err = writeSynced(filepath.Join(dir, spec.ID+extOpen), nil, 0o600)
			}
		}
		if err == nil || errors.Is(err, fs.ErrExist) {
			err = disk.SyncDir(dir)
		}
		if err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "record that a notice is to be sent", Err: err,
				Hint: "is there space left? df -h " + s.home}
		}
	}
	return nil
}

// NoticeGroups returns the labels with jobs that are still to be told of, and removes
// what is left of old ones.
func (s *Store) NoticeGroups() ([]*Group, error) {
	entries, err := os.ReadDir(filepath.Join(s.home, dirNotices))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []*Group
	for _, e := range entries {
		g, err := s.noticeGroup(strings.TrimPrefix(e.Name(), noLabel))
		switch {
		case err != nil:
		case len(g.Open) > 0:
			out = append(out, g)
		default:
			if fi, err := e.Info(); err == nil && time.Since(fi.ModTime()) > noticesKept {
				_ = disk.RemoveTree(g.dir)
			}
		}
	}
	return out, nil
}

func (s *Store) noticeGroup(label string) (*Group, error) {
	g := &Group{Label: label, dir: s.noticeDir(label), last: map[string]string{}}
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries { // in the order of their ids
		id, ext, _ := strings.Cut(e.Name(), ".")
		switch {
		case !jobs.ValidID(id):
		case "."+ext == extOpen:
			g.Open = append(g.Open, id)
		case !strings.Contains(ext, "."):
			g.last[ext] = max(g.last[ext], id)
		}
	}
	return g, nil
}

// Untold are those of some jobs that no notice of this way has told of.
func (g *Group) Untold(way string, ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id <= g.last[way] })
}

// Claim is taken by the one process that sends a notice of these jobs.
func (g *Group) Claim(way string, ids []string, by string, now time.Time) (bool, error) {
	id := slices.Max(ids)
	won, err := createJSON(g.dir, id+"."+way, noticeSent{Version: 1, Jobs: len(ids), By: by, Time: now})
	if err == nil {
		g.last[way] = id
	}
	return won, err
}

// Failed records why a notice that was claimed was not sent.
func (g *Group) Failed(way, reason string, now time.Time) error {
	b, err := encode(noticeFailed{Version: 1, Reason: reason, Time: now})
	if err != nil {
		return err
	}
	return disk.Replace(filepath.Join(g.dir, g.last[way]+"."+way+extFailed), b, 0o600)
}

// Told forgets jobs of which all has been told: the youngest at last, by which others
// that read the directory meanwhile know what was claimed.
func (g *Group) Told(ids []string) {
	for _, id := range slices.Sorted(slices.Values(ids)) {
		_ = os.Remove(filepath.Join(g.dir, id+extOpen))
	}
}

// UnsentNotices says, for people, which notices of a job could not be sent.
func UnsentNotices(r *jobs.Record) (out []string) {
	s := Store{home: HomeOf(r.Dir)}
	for _, label := range r.Spec.NoticeGroups() {
		for _, way := range r.Spec.Notify.Ways() {
			dir := s.noticeDir(label)
			entries, _ := os.ReadDir(dir) // in the order of their ids
			i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), "."+way) && e.Name() >= r.Spec.ID })
			if i < 0 {
				continue
			}
			var f noticeFailed
			path := filepath.Join(dir, entries[i].Name()+extFailed)
			if b, err := readOptional(path); err == nil && b != nil && decode(path, b, &f, &f.Version) == nil {
				out = append(out, "notice not sent ("+way+"): "+f.Reason)
			}
		}
	}
	return out
}
