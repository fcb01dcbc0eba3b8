package task

import (
	"berth/internal/config/strict"
	"berth/jobs"
)

// after reads the jobs that must have ended before: one word such as
// "ok:1a2b3c4d", or a list of them. nil is not said.
func after(v strict.Value) []string {
	var words []string
	switch {
	case !v.Given():
		return nil
	case v.Is(strict.String):
		words = []string{v.Text()}
	case v.Is(strict.List):
		for _, item := range v.Items("jobs") {
			words = append(words, item.Text())
		}
	default:
		v.MustBe(`a string such as "ok:1a2b3c4d", or a list of them`)
		return nil
	}
	if len(words) == 0 {
		return nil
	}
	if _, err := jobs.ParseAfter(words); err != nil {
		v.Fail(err)
	}
	return words
}
