package sweep

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// filePassed has values that are in no record, NAME=VALUE, each with a NUL behind it, as long
// as there are tasks without a result: those of [Spec.EnvNames], and the keys of credentials.
const filePassed = "passed"

// mostPassed bounds them.
const mostPassed = 1 << 20

// Passes tells whether its workers need values that are in no record.
func (s *Spec) Passes() bool {
	return len(s.EnvNames) > 0 || s.Worker != nil && len(s.Worker.Credentials) > 0
}

// SetPassed keeps values for the workers, for their user alone, in the place of those before.
func (s *Sweep) SetPassed(values []string) error { return s.keepPassed(values, disk.Replace) }

// RestorePassed keeps them where none are kept.
func (s *Sweep) RestorePassed(values []string) error { return s.keepPassed(values, disk.Create) }

func (s *Sweep) keepPassed(values []string, write func(path string, data []byte, mode os.FileMode) error) error {
	var b bytes.Buffer
	for _, kv := range values {
		b.WriteString(kv)
		b.WriteByte(0)
	}
	if b.Len() > mostPassed {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the values that tasks take from your environment have more than 1 MiB"}
	}
	if err := write(filepath.Join(s.Dir, filePassed), b.Bytes(), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "keep the values that tasks take from your environment", Err: err}
	}
	return nil
}

// Passed are the values that are kept; nil is that there are none.
func (s *Sweep) Passed() (values []string, err error) {
	b, err := disk.ReadRegular(filepath.Join(s.Dir, filePassed), mostPassed)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for kv := range bytes.SplitSeq(b, []byte{0}) {
		if len(kv) > 0 {
			values = append(values, string(kv))
		}
	}
	return values, nil
}

// DropPassed removes them.
func (s *Sweep) DropPassed() error {
	if err := os.Remove(filepath.Join(s.Dir, filePassed)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
