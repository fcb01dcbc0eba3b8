package workspace

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Many files cost no processes of their own.
func TestFiveThousandFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("writes thousands of files")
	}
	f := newFixture(t)
	files := map[string]string{}
	for i := range 5000 {
		files[fmt.Sprintf("d%d/e%d/f%d.txt", i%20, i%300, i)] = strings.Repeat(fmt.Sprintln("line", i), 50)
	}
	f.commit(files)
	runs := 0
	f.g.Run = func(ctx context.Context, c Cmd) error { runs++; return execRun(ctx, c) }
	start := time.Now()
	f.prepare()
	t.Logf("resolved and prepared in %v, %d runs of git", time.Since(start), runs)
	for i := range 2500 {
		files[fmt.Sprintf("d%d/e%d/f%d.txt", i%20, i%300, i)] = "changed\n"
		files[fmt.Sprintf("n%d/new%d", i%20, i)] = "new\n"
	}
	f.write(f.work(), files)
	runs, start = 0, time.Now()
	res := f.collect(CollectOptions{})
	t.Logf("collected %d changes in %v, %d runs of git", len(res.Files), time.Since(start), runs)
	start = time.Now()
	must(t, f.intake(res))
	t.Logf("taken in in %v", time.Since(start))
	if runs > 40 {
		t.Errorf("%d runs of git", runs)
	}
}
