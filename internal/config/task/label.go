package task

import (
	"slices"

	"berth/internal/config/strict"
	"berth/jobs"
)

// labels reads the words that mark a job: one, or a list of them.
func labels(v strict.Value) []string {
	var words []string
	switch {
	case !v.Given():
		return nil
	case v.Is(strict.String):
		words = []string{v.Text()}
	case v.Is(strict.List):
		for _, item := range v.Items("labels") {
			if w := item.Text(); !slices.Contains(words, w) {
				words = append(words, w)
			}
		}
	default:
		v.MustBe("a string, or a list of them")
		return nil
	}
	if err := jobs.CheckLabels(words); err != nil {
		v.Fail(err)
	}
	return words
}
