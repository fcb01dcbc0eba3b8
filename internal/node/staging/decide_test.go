package staging

import (
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

func TestDecide(t *testing.T) {
	const big = 1 << 30
	for name, c := range map[string]struct {
		Case
		form Form
		why  string
	}{
		"kernel":               {Case{Driver: jobs.DriverKernel, Local: true}, Unpacked, "kernel"},
		"kernel, never":        {Case{Driver: jobs.DriverKernel, Setting: jobs.StageNever}, "", "never"},
		"a directory":          {Case{Driver: jobs.DriverKernel, Dir: true, Setting: jobs.StageAlways}, "", "unpacked"},
		"never":                {Case{Size: big, Tasks: 8, There: true, Lasting: true, Setting: jobs.StageNever}, "", "never"},
		"always":               {Case{Local: true, Setting: jobs.StageAlways}, SIF, "always"},
		"auto is the default":  {Case{Size: big, Lasting: true, Setting: jobs.StageAuto}, SIF, "long"},
		"local":                {Case{Size: big, Local: true, Tasks: 8, Lasting: true}, "", "disk of this node"},
		"there":                {Case{Size: 1, There: true}, SIF, "already"},
		"tasks":                {Case{Size: 1, Tasks: 8}, SIF, "8 tasks"},
		"one task":             {Case{Size: 1, Tasks: 1, Lasting: true}, "", "small"},
		"in memory":            {Case{Size: big, Lasting: true, Memory: true, Tasks: 8}, "", "would take memory"},
		"there, in memory":     {Case{Size: big, Lasting: true, Memory: true, There: true}, SIF, "already"},
		"kernel, in memory":    {Case{Driver: jobs.DriverKernel, Memory: true}, Unpacked, "kernel"},
		"gone with the job":    {Case{Size: big, Environment: true}, "", "gone with the job"},
		"an environment":       {Case{Size: 1, Environment: true, Lasting: true}, SIF, "environment"},
		"others":               {Case{Size: 1, Others: 2, Lasting: true}, SIF, "(2)"},
		"small":                {Case{Size: SmallImage - 1, Lasting: true}, "", "small"},
		"long":                 {Case{Size: SmallImage, Time: ShortJob + time.Second, Lasting: true}, SIF, "long"},
		"of unknown time":      {Case{Size: SmallImage, Lasting: true}, SIF, "long"},
		"short":                {Case{Size: big, Time: ShortJob, Lasting: true}, "", "short (10m0s)"},
		"ext3 from a SIF":      {Case{Driver: jobs.DriverExt3, Setting: jobs.StageAlways}, SIF, "always"},
		"fuse on a local disk": {Case{Driver: jobs.DriverFuse, Local: true, Lasting: true}, "", "disk"},
	} {
		if form, why := c.Decide(); form != c.form || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q, %q", name, form, why)
		}
	}
}
