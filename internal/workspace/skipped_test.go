package workspace

import (
	"strings"
	"testing"
)

func TestLeftOut(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"a": "2\n", "big": strings.Repeat("x", 101), "n/1": "1", "n/2": "2", "n/3": "3", "n/4": "4", "git~1": "no"})
	res := f.collect(CollectOptions{Limits: Limits{FileBytes: 100, NewFiles: 2}})
	same(t, "kinds", res.SkippedKinds, map[Kind]int{TooMany: 3, TooLarge: 1, Refused: 1})
	same(t, "in words", res.LeftOut(), "5 paths: 3 beyond the limit on files, 1 larger than the limits allow, 1 that git cannot hold")

	res = f.collect(CollectOptions{Limits: Limits{FileBytes: 101, NewFiles: 5}})
	same(t, "in words", res.LeftOut(), "1 path that git cannot hold")
	for want, res := range map[string]Result{
		"":                                     {},
		"3 paths":                              {SkippedMore: 3},
		"1001 paths beyond the limit on files": {Skipped: []Skipped{{Path: "a"}}, SkippedMore: 1000, SkippedKinds: map[Kind]int{TooMany: 1001}},
		"2 paths: 1 larger than the limits allow, 1 that cannot be read": {SkippedMore: 2, SkippedKinds: map[Kind]int{Unreadable: 1, TooLarge: 1}},
	} {
		same(t, "in words", res.LeftOut(), want)
	}
}
