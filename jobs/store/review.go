package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/jobs"
)

const (
	// dirReview is in the directory of a job.
	dirReview = "review"
	// mostReviews bounds the files of one kind.
	mostReviews = 9999
	maxNote     = 64 << 10
)

// Kinds of its files, by what stands before the number.
const (
	reviewRun    = "run-"
	reviewAdvice = "advice-"
	reviewMerge  = "merge-"
	reviewMerged = "merged-"
	reviewShown  = "shown-"
)

func reviewFile(jobDir, kind string, n int) string {
	return filepath.Join(jobDir, dirReview, fmt.Sprintf("%s%04d.json", kind, n))
}

// AddVerdict records a verdict under the next number, which it returns.
func AddVerdict(jobDir string, v jobs.ReviewVerdict) (int, error) {
	if len(v.Note) > maxNote {
		return 0, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the note has %d bytes", len(v.Note)), Hint: fmt.Sprintf("at most %d", maxNote)}
	}
	return addReview(jobDir, "", v)
}

// AddReviewRun records how the done commands went, under the next number.
func AddReviewRun(jobDir string, v jobs.ReviewRun) (int, error) {
	return addReview(jobDir, reviewRun, v)
}

// AddAdvice records what an agent says of a result, under the next number.
func AddAdvice(jobDir string, v jobs.ReviewAdvice) (int, error) {
	return addReview(jobDir, reviewAdvice, v)
}

// addReview creates the file with the next number: another process may take it first.
func addReview(jobDir, kind string, v any) (int, error) {
	data, err := encode(v)
	if err != nil {
		return 0, err
	}
	if err := makeDir(filepath.Join(jobDir, dirReview)); err != nil {
		return 0, err
	}
	numbers, err := reviewNumbers(jobDir)
	if err != nil {
		return 0, err
	}
	n := 1
	if have := numbers[kind]; len(have) > 0 {
		n = have[len(have)-1] + 1
	}
	for ; n <= mostReviews; n++ {
		if won, err := CreateOnce(reviewFile(jobDir, kind, n), data); won || err != nil {
			return n, err
		}
	}
	return 0, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the job has %d reviews already", mostReviews)}
}

// SetMerge writes the journal of the merge of the n-th verdict, and returns whether this
// process was the one.
func SetMerge(jobDir string, n int, v jobs.ReviewMerge) (bool, error) {
	data, err := encode(v)
	if err != nil {
		return false, err
	}
	return CreateOnce(reviewFile(jobDir, reviewMerge, n), data)
}

// SetMerged records that the target was moved.
func SetMerged(jobDir string, n int, v jobs.ReviewMerged) (bool, error) {
	data, err := encode(v)
	if err != nil {
		return false, err
	}
	return CreateOnce(reviewFile(jobDir, reviewMerged, n), data)
}

// SetShown records that the diff to a tree was printed.
func SetShown(jobDir, tree string) error {
	if err := makeDir(filepath.Join(jobDir, dirReview)); err != nil {
		return err
	}
	_, err := CreateOnce(filepath.Join(jobDir, dirReview, reviewShown+tree), nil)
	return err
}

// LoadReviews reads all that was decided and tried of a job's result.
func LoadReviews(jobDir string) (*jobs.Reviews, error) {
	r := &jobs.Reviews{Merged: map[int]jobs.ReviewMerged{}, Shown: map[string]bool{}}
	names, err := readNames(filepath.Join(jobDir, dirReview))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if tree, ok := strings.CutPrefix(name, reviewShown); ok {
			r.Shown[tree] = true
		}
	}
	numbers := numbersOf(names)
	for _, n := range numbers[""] {
		v := jobs.ReviewVerdict{N: n}
		path := reviewFile(jobDir, "", n)
		if err := readReview(path, &v, &v.Version); err != nil {
			return nil, err
		}
		if v.Verdict != jobs.VerdictApprove && v.Verdict != jobs.VerdictReject {
			return nil, damaged(path, fmt.Errorf("the verdict is %q", v.Verdict))
		}
		r.Verdicts = append(r.Verdicts, v)
	}
	for _, n := range numbers[reviewRun] {
		v := jobs.ReviewRun{N: n}
		if err := readReview(reviewFile(jobDir, reviewRun, n), &v, &v.Version); err != nil {
			return nil, err
		}
		r.Runs = append(r.Runs, v)
	}
	for _, n := range numbers[reviewAdvice] {
		v := jobs.ReviewAdvice{N: n}
		if err := readReview(reviewFile(jobDir, reviewAdvice, n), &v, &v.Version); err != nil {
			return nil, err
		}
		r.Advice = append(r.Advice, v)
	}
	for _, n := range numbers[reviewMerge] {
		v := jobs.ReviewMerge{N: n}
		if err := readReview(reviewFile(jobDir, reviewMerge, n), &v, &v.Version); err != nil {
			return nil, err
		}
		r.Merges = append(r.Merges, v)
	}
	for _, n := range numbers[reviewMerged] {
		var v jobs.ReviewMerged
		if err := readReview(reviewFile(jobDir, reviewMerged, n), &v, &v.Version); err != nil {
			return nil, err
		}
		r.Merged[n] = v
	}
	return r, nil
}

func readReview(path string, v any, version *int) error {
	b, err := readRecord(path)
	if err != nil {
		return err
	}
	return decode(path, b, v, version)
}

func reviewNumbers(jobDir string) (map[string][]int, error) {
	names, err := readNames(filepath.Join(jobDir, dirReview))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return numbersOf(names), err
}

// numbersOf are the numbers of the files of each kind, in order. Other names are nothing.
func numbersOf(names []string) map[string][]int {
	out := map[string][]int{}
	for _, name := range names {
		stem, ok := strings.CutSuffix(name, ".json")
		if !ok || len(stem) < 4 {
			continue
		}
		kind, digits := stem[:len(stem)-4], stem[len(stem)-4:]
		n, err := strconv.Atoi(digits)
		if err != nil || n < 1 || strings.ContainsAny(digits, "+-") ||
			!slices.Contains([]string{"", reviewRun, reviewAdvice, reviewMerge, reviewMerged}, kind) {
			continue
		}
		out[kind] = append(out[kind], n)
	}
	for _, list := range out {
		slices.Sort(list)
	}
	return out
}
