package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/jobs"
)

const (
	// FileNetwork is what a judge has decided, one JSON object a line, by the supervisor of
	// an attempt or of an environment.
	FileNetwork = "network.jsonl"
	// dirAllow is in the directory of a job, or of an environment.
	dirAllow = "network-allow"
	maxAllow = 64 << 10
)

// AllowName is the file of an act, below the directory of its job or environment.
func AllowName(id string) string { return dirAllow + "/" + id + ".json" }

// IsAllowName reports whether a file has such a name.
func IsAllowName(name string) bool {
	id, ok := strings.CutPrefix(name, dirAllow+"/")
	id, isJSON := strings.CutSuffix(id, ".json")
	return ok && isJSON && jobs.ValidID(id)
}

// AddAllow records that the user adds words to what a job or an environment may reach.
func AddAllow(dir string, v jobs.NetworkAddition) error {
	if err := checkAllow(&v, v.ID); err != nil {
		return err
	}
	b, err := encode(v)
	if err != nil {
		return err
	}
	return createAllow(dir, v.ID, b)
}

func createAllow(dir, id string, data []byte) error {
	ids, err := allowIDs(dir)
	switch {
	case err != nil:
		return err
	case slices.Contains(ids, id):
		return nil
	case len(ids) >= jobs.MostAllows:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("words were added %d times already", len(ids)),
			Hint: "start it again with all of them"}
	}
	if err := makeDir(filepath.Join(dir, dirAllow)); err != nil {
		return err
	}
	_, err = CreateOnce(filepath.Join(dir, AllowName(id)), data)
	return err
}

// checkAllow looks at what was written elsewhere. Whether the words are rules is for the
// supervisor to say.
func checkAllow(v *jobs.NetworkAddition, id string) error {
	if v.ID != id || !jobs.ValidID(v.ID) || len(v.Words) == 0 || len(v.Words) > jobs.MostAllowWords {
		return fmt.Errorf("%q has %d words", v.ID, len(v.Words))
	}
	for _, w := range append([]string{v.By, v.Host}, v.Words...) {
		if err := jobs.CheckText("a word", w); err != nil || len(w) > 1000 {
			return fmt.Errorf("the word %.60q: %w", w, errors.Join(err))
		}
	}
	return nil
}

// Allows returns the words that the user has added, oldest first. known are the ids of
// those that are not wanted. What cannot be read is in the error, beside the others.
func Allows(dir string, known map[string]bool) (out []jobs.NetworkAddition, err error) {
	ids, err := allowIDs(dir)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, id := range ids {
		if known[id] {
			continue
		}
		b, err := readAllow(dir, id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		v, err := decodeAllow(filepath.Join(dir, AllowName(id)), id, b)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, v)
	}
	return out, errors.Join(errs...)
}

// AllowFiles are the files of all acts, by their names below the directory.
func AllowFiles(dir string) (map[string][]byte, error) {
	ids, err := allowIDs(dir)
	out := make(map[string][]byte, len(ids))
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		b, err := readAllow(dir, id)
		if err != nil {
			return nil, err
		}
		out[AllowName(id)] = b
	}
	return out, nil
}

func readAllow(dir, id string) ([]byte, error) {
	b, err := readRecord(filepath.Join(dir, AllowName(id)))
	if err == nil && len(b) > maxAllow {
		err = damaged(filepath.Join(dir, AllowName(id)), fmt.Errorf("it has %d bytes", len(b)))
	}
	return b, err
}

func allowIDs(dir string) (ids []string, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, dirAllow))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if id := strings.TrimSuffix(e.Name(), ".json"); IsAllowName(dirAllow+"/"+e.Name()) && len(ids) < jobs.MostAllows {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, err
}

func decodeAllow(path, id string, data []byte) (v jobs.NetworkAddition, err error) {
	if err = decode(path, data, &v, &v.Version); err == nil {
		if err = checkAllow(&v, id); err != nil {
			err = damaged(path, err)
		}
	}
	return v, err
}

// importAllow creates the file of an act that was made on another machine.
func importAllow(jobDir, name string, data []byte) error {
	id := strings.TrimSuffix(strings.TrimPrefix(name, dirAllow+"/"), ".json")
	if len(data) > maxAllow {
		return fmt.Errorf("it has %d bytes", len(data))
	}
	if _, err := decodeAllow(name, id, data); err != nil {
		return err
	}
	return createAllow(jobDir, id, data)
}
