package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/claims"
	"berth/internal/sweep/command"
	"berth/internal/sweep/journal"
	"berth/internal/sys/ids"
)

// proofVar names the sweep whose worker this process is to be, and not a test.
const proofVar = "BERTH_TEST_SWEEP"

// beatVar is how often that one gives a sign of life, where it is not 30 ms.
const beatVar = "BERTH_TEST_BEAT"

func TestMain(m *testing.M) {
	dir := os.Getenv(proofVar)
	if dir == "" {
		os.Exit(m.Run())
	}
	s, err := sweep.Open(dir)
	beat := 30 * time.Millisecond
	if text := os.Getenv(beatVar); err == nil && text != "" {
		beat, err = time.ParseDuration(text)
	}
	if err == nil {
		err = Run(context.Background(), Config{Sweep: s, Env: []string{"PATH=" + os.Getenv("PATH")}, Beat: beat})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// proofTask is a small simulation: 20 steps of a generator whose end is known. Some print
// 64 MiB, or no line end.
const proofTask = `x={n}; i=0; while [ $i -lt 20 ]; do x=$(( (x * 1103 + 12345) % 65537 )); i=$((i+1)); done
case {n} in 250) head -c 67108864 /dev/zero | tr '\0' a ;; 251) printf 'no line end' ;; esac
[ {path} = 'dir/../'{n}'/ ; $(x)' ] || exit 9
sleep 0.0{n}; printf '\n=%s' $x`

func proofAnswer(n int) int {
	for range 20 {
		n = (n*1103 + 12345) % 65537
	}
	return n
}

const proofTasks = 500

// proofSweep is a sweep of these tasks below root.
func proofSweep(t *testing.T, root string, workers int) *sweep.Sweep {
	t.Helper()
	id, err := ids.New()
	must(t, err)
	s, err := sweep.Create(root, sweep.Spec{ID: id, Name: "proof", Words: []string{proofTask}, Script: true, Slots: 2, Workdir: t.TempDir()}, workers, nil,
		func(add func(command.Task) error) error {
			for n := 1; n <= proofTasks; n++ {
				err := add(command.Task{Number: n, ID: command.ID{byte(n), byte(n >> 8)}, Params: []command.Param{
					{Name: "n", Text: strconv.Itoa(n)}, {Name: "path", Text: fmt.Sprintf("dir/../%d/ ; $(x)", n)},
				}})
				if err != nil {
					return err
				}
			}
			return nil
		})
	must(t, err)
	return s
}

// Workers that are killed at any moment, 20 times, by a signal that they do not see: in the
// end each task has one accepted result, and they come to the known sum.
func TestProof(t *testing.T) {
	const kills = 20
	s := proofSweep(t, t.TempDir(), 2)
	r := rand.New(rand.NewPCG(1, uint64(os.Getpid())))
	begin := func() *exec.Cmd {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), proofVar+"="+s.Dir)
		c.Stderr = os.Stderr
		must(t, c.Start())
		return c
	}
	workers := []*exec.Cmd{begin(), begin()}
	defer func() {
		for _, c := range workers {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	for range kills {
		time.Sleep(time.Duration(20+r.IntN(200)) * time.Millisecond)
		i := r.IntN(2)
		_ = workers[i].Process.Kill() // SIGKILL; one that has just ended is none to be killed
		_ = workers[i].Wait()
		workers[i] = begin()
	}
	for i := range workers {
		if err := workers[i].Wait(); err != nil {
			t.Error(err)
		}
	}
	f, err := s.Fold()
	must(t, err)
	// A task that ran at three of these moments is taken for what killed its workers.
	var again sweep.Numbers
	for n := 1; n <= proofTasks; n++ {
		if f.State(uint32(n)) == journal.SetAside {
			again.Add(n)
		}
	}
	if len(again) > 0 {
		_, err := s.AddRound(sweep.Round{Kind: sweep.RoundRetry, Runs: again}, 1, nil)
		must(t, err)
		must(t, Run(t.Context(), config(t, s)))
	}
	proved(t, s)
	oneResult(t, s)
}

// proved checks that every task of a [proofSweep] has succeeded, and their sum.
func proved(t *testing.T, s *sweep.Sweep) {
	t.Helper()
	f, err := s.Fold()
	must(t, err)
	if f.Count(journal.OK) != proofTasks {
		t.Fatalf("%d of %d", f.Count(journal.OK), proofTasks)
	}
	sum, want := 0, 0
	for n := 1; n <= proofTasks; n++ {
		text, _ := output(t, s, f, uint32(n))
		x, err := strconv.Atoi(text[strings.LastIndexByte(text, '=')+1:])
		if err != nil || x != proofAnswer(n) {
			t.Errorf("task %d: %q", n, text[max(0, len(text)-40):])
		}
		sum += x
		want += proofAnswer(n)
	}
	if sum != want {
		t.Errorf("the sum is %d, not %d", sum, want)
	}
}

// oneResult checks that a generation of a task has one result, and that nothing is left to claim.
func oneResult(t *testing.T, s *sweep.Sweep) {
	t.Helper()
	type key struct {
		task              uint32
		round, generation uint16
	}
	ends := map[key]int{}
	all, err := s.Workers()
	must(t, err)
	for _, w := range all {
		_, err := journal.Read(filepath.Join(s.WorkerDir(w), journal.ResultsFile), 0, func(r journal.Record) {
			if r.Kind == journal.End || r.Kind == journal.Adopted {
				ends[key{r.Task, r.Round, r.Generation}]++
			}
		})
		must(t, err)
	}
	for k, n := range ends {
		if n != 1 {
			t.Errorf("%+v has %d results", k, n)
		}
	}
	for round := 1; round <= s.Rounds(); round++ {
		h, _, err := claims.New(s.Claims(round), 1<<20, func(uint32) bool { return true }).Next(0)
		if h != nil || err != nil {
			t.Errorf("round %d: %+v is not closed, %v", round, h, err)
		}
	}
}
