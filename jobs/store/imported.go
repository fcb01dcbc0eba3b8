package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/sys/disk"
	"berth/jobs"
)

const (
	// dirImported has the reviews of other users' jobs, by the ids of those.
	dirImported  = "reviews"
	fileImported = "imported.json"
	// importVersion is the newest schema of fileImported: 2 has several repositories.
	importVersion = 2
	// importing is how the directory of one begins that is not complete.
	importing = ".import-"
)

// FilePrompt is the prompt of a task, in the directory of its job.
const FilePrompt = filePrompt

// BeginImport makes the private directory that a file from another user is unpacked into;
// [Store.AddImported] gives it its name, or whoever made it removes it. Those that a
// killed process has left go after a day.
func (s *Store) BeginImport() (string, error) {
	root := filepath.Join(s.home, dirImported)
	if err := makeDir(root); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), importing) && time.Since(fi.ModTime()) > 24*time.Hour {
			_ = disk.RemoveTree(filepath.Join(root, e.Name()))
		}
	}
	return os.MkdirTemp(root, importing)
}

// AddImported records a review of another user's job with what was unpacked into dir. It
// returns false when there is one of this job already.
func (s *Store) AddImported(dir string, v jobs.ReviewImport) (bool, error) {
	data, err := encode(v)
	if err != nil {
		return false, err
	}
	if err := disk.Create(filepath.Join(dir, fileImported), data, 0o600); err != nil {
		return false, err
	}
	to := s.importedDir(v.Sent.Job)
	if _, err := os.Lstat(to); err == nil {
		return false, nil
	}
	err = os.Rename(dir, to)
	if errors.Is(err, fs.ErrExist) { // another process was faster
		return false, nil
	}
	return err == nil, errors.Join(err, disk.SyncDir(filepath.Dir(to)))
}

// RemoveImported forgets the imported review of a job, with its verdicts. That there is
// none is no error.
func (s *Store) RemoveImported(id string) error {
	if err := disk.RemoveTree(s.importedDir(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "remove the imported review of job " + jobs.Short(id), Err: err}
	}
	return nil
}

func (s *Store) importedDir(id string) string { return filepath.Join(s.home, dirImported, id) }

// FindImported returns the one imported review that a prefix or suffix of its job's id
// names.
func (s *Store) FindImported(word string) (*jobs.Record, error) {
	ids, err := s.importedIDs()
	if err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !jobs.MatchID(id, word) })
	if len(ids) == 1 {
		return s.LoadImported(ids[0])
	}
	return s.one(word, ids)
}

// ListImported returns all imported reviews, oldest job first. What cannot be read is in
// the error, beside the others.
func (s *Store) ListImported() ([]*jobs.Record, error) {
	ids, err := s.importedIDs()
	errs := []error{err}
	var out []*jobs.Record
	for _, id := range ids {
		r, err := s.LoadImported(id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, r)
	}
	return out, errors.Join(errs...)
}

func (s *Store) importedIDs() ([]string, error) {
	names, err := readNames(filepath.Join(s.home, dirImported))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "list the imported reviews", Err: err}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !jobs.ValidID(name) })
	slices.Sort(names)
	return names, nil
}

// LoadImported reads an imported review, as the record of the job would be for it.
func (s *Store) LoadImported(id string) (*jobs.Record, error) {
	dir := s.importedDir(id)
	path := filepath.Join(dir, fileImported)
	data, err := readRecord(path)
	if err != nil {
		return nil, err
	}
	var v jobs.ReviewImport
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, damaged(path, err)
	}
	if v.Version > importVersion {
		return nil, newer(path, v.Version)
	}
	sent := &v.Sent
	if sent.Job != id || !sent.State.Final() || len(sent.Further) != len(v.Further) {
		return nil, damaged(path, fmt.Errorf("it is of job %.40q in state %.40q, with %d repositories of %d",
			sent.Job, sent.State, 1+len(v.Further), 1+len(sent.Further)))
	}
	of := func(w *jobs.SentWorkspace, at *jobs.ImportRepo) (jobs.WorkspaceSpec, jobs.Result) {
		res := w.Result
		res.Taken, res.Further = true, nil
		return jobs.WorkspaceSpec{Name: w.Workspace, Repo: at.Top, GitDir: at.Repo, Base: w.Base, BaseRef: strings.TrimPrefix(w.Ref, "refs/heads/"),
			Branch: w.Branch, Scope: w.Scope}, res
	}
	first, res := of(&sent.SentWorkspace, &v.ImportRepo)
	r := &jobs.Record{Dir: dir, Sent: sent, Spec: jobs.Spec{ID: id, Name: sent.Name, Slug: sent.Slug,
		Prompt: sent.PromptBytes > 0, PromptBytes: sent.PromptBytes, Done: sent.Commands, Created: sent.Created, User: sent.By, Host: sent.Host,
		Workspace: &first}}
	for i := range sent.Further {
		w, one := of(&sent.Further[i], &v.Further[i])
		r.Spec.Further, res.Further = append(r.Spec.Further, w), append(res.Further, one)
	}
	r.Spec.Level = sent.Level
	r.Attempts = []jobs.Attempt{{N: 1, Dir: dir, Exit: &jobs.ExitRecord{Version: 1, State: sent.State, Result: &res, Done: sent.Done,
		Usage: sent.Usage, Agent: sent.Agent, Ended: sent.Ended}}}
	return r, nil
}

// ReadPrintable reads JSON that another user has written into v. Control characters of
// its texts become spaces, but for line breaks and tabs.
func ReadPrintable(path string, v any) error {
	data, err := readRecord(path)
	if err != nil {
		return err
	}
	var content any
	if err := json.Unmarshal(data, &content); err != nil {
		return err
	}
	if data, err = json.Marshal(printable(content)); err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

func printable(v any) any {
	switch v := v.(type) {
	case string:
		lines := strings.Split(v, "\n")
		for i, line := range lines {
			words := strings.Split(line, "\t")
			for j, w := range words {
				words[j] = jobs.Printable(w)
			}
			lines[i] = strings.Join(words, "\t")
		}
		return strings.Join(lines, "\n")
	case []any:
		for i := range v {
			v[i] = printable(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = printable(v[k])
		}
	}
	return v
}
