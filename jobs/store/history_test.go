package store

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"berth/jobs"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sys/unix"
)

// An operation of a history on one job: of which attempt, by whom, what came of
// it, and when it began and returned.
type operation struct {
	Client       int
	Job          string
	Op           string // claim, decide, begin, cancel; claimed?, decided?, begun?, cancelled?
	N            int
	Who          string
	Won          bool   // of an operation that writes: this one was the first
	Saw          string // of one that reads: who was, or "yes"
	Call, Return int64
}

// ledgerModel is the model: what a job's record must look like to all clients, as if
// they had come one after the other.
type ledgerModel struct {
	cancelled bool
	begun     [4]bool // by number; the first attempt is there from the beginning
	claim     [4]string
	decision  [4]string
}

// step is what an operation does, and whether it could have had this result.
func (m ledgerModel) step(o operation) (bool, ledgerModel) {
	first := func(slot *string) bool {
		free := *slot == ""
		if free {
			*slot = o.Who
		}
		return o.Won == free
	}
	switch o.Op {
	case "claim":
		return first(&m.claim[o.N]), m
	case "decide":
		return first(&m.decision[o.N]), m
	case "begin":
		free := !m.begun[o.N]
		m.begun[o.N] = true
		return o.Won == free, m
	case "cancel":
		free := !m.cancelled
		m.cancelled = true
		return o.Won == free, m
	case "claimed?":
		return o.Saw == m.claim[o.N], m
	case "decided?":
		return o.Saw == m.decision[o.N], m
	case "begun?":
		return (o.Saw != "") == m.begun[o.N], m
	case "cancelled?":
		return (o.Saw != "") == m.cancelled, m
	}
	return false, m
}

// TestHistories has clients in this process and in others work on the same jobs
// at once, and looks whether what each of them saw is what could have been had
// they come one after the other, in some order that fits the times.
func TestHistories(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano() % 1e6)
	if s := os.Getenv("BERTH_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("seed %d (BERTH_SEED)", seed)
	s := open(t)
	const count, here, elsewhere = 6, 4, 3
	for range count {
		create(t, s)
	}
	start := filepath.Join(s.Home(), "go")
	var mu sync.Mutex
	var history []operation
	add := func(o operation) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, o)
	}
	var wg sync.WaitGroup
	for c := range elsewhere {
		cmd := child(t, "history", s.Home(), strconv.Itoa(here+c), strconv.FormatUint(seed, 10))
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		wg.Go(func() {
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				var o operation
				if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
					t.Errorf("%q: %v", lines.Text(), err)
				}
				add(o)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	for c := range here {
		wg.Go(func() {
			if err := client(s, c, seed, add); err != nil {
				t.Error(err)
			}
		})
	}
	must(t, os.WriteFile(start, nil, 0o600))
	wg.Wait()
	byJob := map[string][]porcupine.Operation{}
	for _, o := range history {
		byJob[o.Job] = append(byJob[o.Job], porcupine.Operation{ClientId: o.Client, Input: o, Output: o, Call: o.Call, Return: o.Return})
	}
	model := porcupine.Model{
		Init: func() any { return ledgerModel{begun: [4]bool{1: true}} },
		Step: func(state, input, _ any) (bool, any) {
			return state.(ledgerModel).step(input.(operation))
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
	}
	if len(byJob) != count || len(history) < count*(here+elsewhere) {
		t.Fatalf("%d operations on %d jobs", len(history), len(byJob))
	}
	for job, ops := range byJob {
		switch porcupine.CheckOperationsTimeout(model, ops, 20*time.Second) {
		case porcupine.Illegal:
			for _, o := range ops {
				t.Logf("%+v", o.Input)
			}
			t.Errorf("no order of these %d operations on job %s explains what their clients saw", len(ops), job)
		case porcupine.Unknown:
			t.Logf("%d operations on job %s could not be checked in time", len(ops), job)
		case porcupine.Ok:
		}
	}
	t.Logf("%d operations", len(history))
	// And what cannot be is seen to be so.
	for _, ops := range byJob {
		for n := range int64(2) {
			o := operation{Op: "claim", N: 1, Who: "nobody", Won: true}
			ops = append(ops, porcupine.Operation{Input: o, Output: o, Call: monotonic() + n, Return: monotonic() + n})
		}
		if porcupine.CheckOperationsTimeout(model, ops, 20*time.Second) == porcupine.Ok {
			t.Error("two that both won are taken for possible")
		}
	}
}

// historyChild is a client in a process of its own; it prints what it did.
func historyChild(home, number, seed string) {
	s, err := Open(home)
	if err != nil {
		panic(err)
	}
	c, err1 := strconv.Atoi(number)
	n, err2 := strconv.ParseUint(seed, 10, 64)
	if err1 != nil || err2 != nil {
		panic(number + " " + seed)
	}
	out := json.NewEncoder(os.Stdout)
	if err := client(s, c, n, func(o operation) { _ = out.Encode(o) }); err != nil {
		panic(err)
	}
}

// client does things to all jobs, when the file "go" is there, for some minutes
// at most.
func client(s *Store, number int, seed uint64, did func(operation)) error {
	rnd := rand.New(rand.NewPCG(seed, uint64(number)))
	ids, err := s.ids("")
	if err != nil {
		return err
	}
	for {
		if _, err := os.Stat(filepath.Join(s.Home(), "go")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	const each = 8
	deadline := time.Now().Add(2 * time.Minute)
	for i := range each {
		for _, at := range rnd.Perm(len(ids)) {
			if time.Now().After(deadline) && i > 0 {
				return nil
			}
			o := operation{Client: number, Job: ids[at], N: 1 + rnd.IntN(3), Who: fmt.Sprintf("client %d, round %d", number, i)}
			o.Op = []string{"claim", "decide", "begin", "cancel", "claimed?", "decided?", "begun?", "cancelled?"}[rnd.IntN(8)]
			if err := o.do(s); err != nil {
				return fmt.Errorf("%+v: %w", o, err)
			}
			if o.Op != "" {
				did(o)
			}
		}
	}
	return nil
}

// do carries the operation out, as the parts of berth do. One on an attempt that
// is not there is none.
func (o *operation) do(s *Store) (err error) {
	job := s.JobDir(o.Job)
	dir := AttemptDir(job, o.N)
	if o.Op == "claim" || o.Op == "decide" || o.Op == "claimed?" || o.Op == "decided?" {
		if _, err := os.Stat(dir); err != nil {
			o.Op = ""
			return nil
		}
	}
	o.Call = monotonic()
	defer func() { o.Return = monotonic() }()
	switch o.Op {
	case "claim":
		o.Won, err = SetClaim(dir, jobs.Claim{Version: 1, Host: o.Who})
	case "decide":
		verb := jobs.Decision{Version: 1, Verb: jobs.VerbAccept, State: jobs.StateCompleted, By: o.Who}
		o.Won, err = SetDecision(dir, verb)
	case "begin":
		_, o.Won, err = Begin(job, jobs.AttemptInfo{Version: 1, ID: o.Who, Number: o.N}, "#!/bin/bash\n")
	case "cancel":
		o.Won, err = SetCancel(job, jobs.Cancel{Version: 1, By: o.Who})
	case "cancelled?":
		if Cancelled(job) {
			o.Saw = "yes"
		}
	case "begun?":
		if _, err := LoadAttempt(dir); err == nil {
			o.Saw = "yes"
		} else if jobs.KindOf(err) != jobs.KindNotFound {
			return err
		}
	default:
		a, err := LoadAttempt(dir)
		if err != nil {
			return err
		}
		if o.Op == "claimed?" && a.Claim != nil {
			o.Saw = a.Claim.Host
		}
		if o.Op == "decided?" && a.Decision != nil {
			o.Saw = a.Decision.By
		}
	}
	return err
}

// monotonic is one clock for all processes of this machine.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}
