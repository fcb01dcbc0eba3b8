package sweep

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/sweep/claims"
	"berth/internal/sys/disk"
	"berth/jobs"
)

// leftFor is how old what may still be being made has to be before it counts as left.
const leftFor = 24 * time.Hour

const prefixNew = ".new-"

// Remains are the files and directories below root that killed commands have left: sweeps that
// were never made, a day after that, tables of rounds, and containers of single tasks.
func Remains(root string, now time.Time) (found []string) {
	dirs, _ := filepath.Glob(filepath.Join(root, "[0-9a-f][0-9a-f]", prefixNew+"*"))
	for _, d := range dirs {
		id := strings.TrimPrefix(filepath.Base(d), prefixNew)
		if i := strings.LastIndexByte(id, '-'); i > 0 && jobs.ValidID(id[:i]) && older(d, now) {
			found = append(found, d)
		}
	}
	all, _ := List(root)
	for _, s := range all {
		found = append(found, slices.Concat(s.remains(now), s.boxes(now))...)
	}
	return found
}

func older(path string, now time.Time) bool {
	fi, err := os.Lstat(path)
	return err == nil && now.Sub(fi.ModTime()) >= leftFor
}

// remains are the tables that no round has. Where there is a round of its number, whoever
// wrote it has lost, or was killed: no other round can come to have it. One of the next
// number may still be being written.
func (s *Sweep) remains(now time.Time) (found []string) {
	files, _ := filepath.Glob(filepath.Join(s.Dir, "tasks.*"))
	for _, f := range files {
		name, ok := strings.CutSuffix(filepath.Base(f), tableEnd)
		if !ok {
			if name, ok = strings.CutSuffix(filepath.Base(f), offsetsEnd); !ok {
				continue
			}
		}
		part := strings.Split(name, ".")
		if len(part) != 3 {
			continue
		}
		n, err := strconv.Atoi(part[1])
		if err != nil || n < 2 || slices.ContainsFunc(s.later, func(r Round) bool { return r.Table != nil && r.Table.Name == name }) {
			continue
		}
		if n <= s.Rounds() || older(f, now) {
			found = append(found, f)
		}
	}
	return found
}

// BoxDir is where the container of a worker's tasks has its records, below the worker's directory.
// One that a single task has ends with a number.
const BoxDir = "container"

// Boxes are the directories of the containers that workers of the sweeps below root have, or had
// when they were killed: each is recorded as an environment is.
func Boxes(root string) []string {
	all, _ := filepath.Glob(filepath.Join(root, "[0-9a-f][0-9a-f]", "*-*", dirWorkers, "*", "*", BoxDir+"*"))
	return all
}

// boxes are those of single tasks, a day after the last sign of life of their worker, until
// nothing but a count is left of them.
func (s *Sweep) boxes(now time.Time) (found []string) {
	all, _ := filepath.Glob(filepath.Join(s.Dir, dirWorkers, "*", "*", BoxDir+".*"))
	for _, b := range all {
		if older(filepath.Join(filepath.Dir(b), claims.BeatFile), now) && older(b, now) {
			if files, err := os.ReadDir(b); err == nil && len(files) == 1 && isUsage(files[0]) {
				continue
			}
			found = append(found, b)
		}
	}
	return found
}

// Clean removes one of those that [Remains] names, but for the count in it, see [EndBox].
func Clean(path string) error {
	if strings.HasPrefix(filepath.Base(path), BoxDir+".") {
		return EndBox(path)
	}
	return disk.RemoveTree(path)
}
