package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"
)

// dirRows has, of a sweep of a task file, which job each row is.
const (
	dirRows    = "rows"
	rowsPerDir = 500
)

type rowJob struct {
	Job string `json:"job"`
}

func (s *Sweep) rowFile(task int) string {
	return filepath.Join(s.Dir, dirRows, fmt.Sprintf("%03d", task/rowsPerDir), fmt.Sprintf("%d.json", task))
}

// TaskText is the text of the task file, as it was when the sweep was made.
func (s *Sweep) TaskText() ([]byte, error) {
	return disk.ReadRegular(filepath.Join(s.Dir, fileText), 8<<20)
}

// Label is what each job of a sweep of a task file is marked with.
func (s *Sweep) Label() string { return "sweep-" + jobs.Short(s.Spec.ID) }

// SetJob records which job a row is.
func (s *Sweep) SetJob(task int, id string) error {
	path := s.rowFile(task)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(rowJob{id})
	if err == nil {
		_, err = store.CreateOnce(path, append(b, '\n'))
	}
	return err
}

// Job is the job of a row; "" is that it was not submitted yet.
func (s *Sweep) Job(task int) (string, error) {
	b, err := disk.ReadRegular(s.rowFile(task), 4096)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var r rowJob
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil || !jobs.ValidID(r.Job) {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "the record " + s.rowFile(task) + " cannot be read", Err: err}
	}
	return r.Job, nil
}

// Jobs are those of all rows that were submitted, in their order.
func (s *Sweep) Jobs() (ids []string, err error) {
	for n := 1; n <= s.Spec.Tasks; n++ {
		id, err := s.Job(n)
		if err != nil {
			return nil, err
		}
		if id != "" {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
