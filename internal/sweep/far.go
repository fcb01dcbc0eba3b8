package sweep

import (
	"bytes"
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

// Far is what is recorded here of a sweep whose records are on a login host: the file far/ID.json. It has the
// same id there.
type Far struct {
	Version int          `json:"version"`
	ID      string       `json:"id"`
	Name    string       `json:"name"`
	Login   jobs.SSHSpec `json:"login"`
	Tasks   int          `json:"tasks"` // that it was submitted with
	Created time.Time    `json:"created"`
	// EnvNames are variables whose values its tasks take from this machine, see [Spec].
	EnvNames []string `json:"env_names,omitempty"`
}

const (
	dirFar  = "far"
	farEnd  = ".json"
	mostFar = 64 << 10 // bytes of the file
)

func farFile(root, id string) string { return filepath.Join(root, dirFar, id+farEnd) }

// RecordFar records it below root, whole or not at all. One that is there already is [fs.ErrExist].
func RecordFar(root string, f Far) error {
	f.Version = 1
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, dirFar), 0o700); err != nil {
		return err
	}
	return disk.Create(farFile(root, f.ID), append(data, '\n'), 0o600)
}

// Forget removes that. The sweep is not touched.
func (f *Far) Forget(root string) error {
	if err := os.Remove(farFile(root, f.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return disk.SyncDir(filepath.Join(root, dirFar))
}

// ListFar are the sweeps of login hosts that are recorded below root, in no order, and those whose
// records cannot be read.
func ListFar(root string) (all []*Far, unread []Unread, err error) {
	entries, err := os.ReadDir(filepath.Join(root, dirFar))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), farEnd)
		if !ok || !jobs.ValidID(id) {
			continue // it is being written
		}
		f, err := readFar(farFile(root, id), id)
		switch {
		case err == nil:
			all = append(all, f)
		case !errors.Is(err, fs.ErrNotExist):
			unread = append(unread, Unread{filepath.Join(root, dirFar, id), err})
		}
	}
	return all, unread, nil
}

func readFar(path, id string) (*Far, error) {
	b, err := disk.ReadRegular(path, mostFar)
	if err != nil {
		return nil, err
	}
	var v struct{ Version int }
	if err := json.Unmarshal(b, &v); err == nil && v.Version > 1 {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the record " + path + " was made by a newer berth", Hint: "use that one"}
	}
	f := &Far{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err = d.Decode(f)
	if err == nil && d.More() {
		err = errors.New("something stands behind it")
	}
	if err == nil && (f.Version != 1 || f.ID != id || f.Tasks < 0) {
		err = errors.New("it is no record of this sweep")
	}
	if err == nil {
		err = errors.Join(jobs.CheckText("the name of the sweep", f.Name), jobs.CheckText("its login host", f.Login.Host),
			jobs.CheckText("the user there", f.Login.User))
	}
	if err == nil && (f.Name == "" || f.Login.Host == "") {
		err = errors.New("it names no sweep, or no host")
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "the record " + path + " cannot be read", Err: err}
	}
	return f, nil
}

// named is a sweep that a word may mean: one of this machine, or of a login host.
type named struct {
	id, name string
	created  time.Time
	here     *Sweep
	far      *Far
}

// Locate is the sweep that a word names, of this machine or of a login host; the other one is nil. The word is its
// id, a beginning or end of that, or its name, of which the newest counts. No word is the newest of all.
func Locate(root, word string) (*Sweep, *Far, error) {
	here, err := List(root)
	if err != nil {
		return nil, nil, err
	}
	far, _, err := ListFar(root)
	if err != nil {
		return nil, nil, err
	}
	var all []named
	for _, s := range here {
		all = append(all, named{s.Spec.ID, s.Spec.Name, s.Spec.Created, s, nil})
	}
	for _, f := range far {
		all = append(all, named{f.ID, f.Name, f.Created, nil, f})
	}
	slices.SortStableFunc(all, func(a, b named) int { return b.created.Compare(a.created) })
	var found []named
	for _, n := range all {
		if word == "" || n.name == word {
			return n.here, n.far, nil
		}
		if len(word) >= 4 && (strings.HasPrefix(n.id, word) || strings.HasSuffix(n.id, word)) {
			found = append(found, n)
		}
	}
	switch {
	case len(found) == 1:
		return found[0].here, found[0].far, nil
	case len(found) > 1:
		return nil, nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q names %d sweeps", word, len(found)), Hint: "berth sweep ls lists them"}
	case word == "":
		return nil, nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no sweep yet", Hint: "berth sweep run sweep.toml"}
	}
	return nil, nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("there is no sweep %q", word), Hint: "berth sweep ls lists them"}
}

// Scratch makes a private directory below root for what a command about the sweep with this id needs while it
// runs. What a killed one has left is one of the [Remains].
func Scratch(root, id string) (string, error) {
	parent := filepath.Join(root, id[len(id)-2:])
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(parent, prefixNew+id+"-*")
}
