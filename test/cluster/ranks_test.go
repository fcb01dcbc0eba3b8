//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func sortedLines(text string) []string {
	l := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(l)
	return l
}

// One container for each task, on both nodes, each with its own GPUs and layer.
func TestRanks(t *testing.T) {
	each(t, modern, func(t *testing.T, s site) {
		id := s.submit(t, "--nodes 2 --ntasks 3 --gpus a100:1 --time 5m", `touch "$HOME/only-$SLURM_PROCID"; sleep 0.5; ls "$HOME"; echo "rank $SLURM_PROCID of $SLURM_NTASKS, node $SLURM_NODEID of $SLURM_NNODES, job $SLURM_JOB_ID, GPU $CUDA_VISIBLE_DEVICES"; echo "host $(hostname)"; ! env | grep -E "SLURM_(SUBMIT|CONF|SRUN|LAUNCH)" >&2`)
		st := s.wait(t, id, 0)
		a := s.sh(t, "berth logs "+id)
		if a.err != "" { // what Apptainer says of a node without NVIDIA's files is not the task's
			t.Errorf("stderr %q", a.err)
		}
		lines := sortedLines(a.out)
		var nodes []string
		for i := range 3 {
			if !slices.Contains(lines, fmt.Sprintf("only-%d", i)) {
				t.Errorf("rank %d is not in %q", i, lines)
			}
			for n := range 2 {
				if slices.Contains(lines, fmt.Sprintf("rank %d of 3, node %d of 2, job %s, GPU 0", i, n, st.NativeID)) || slices.Contains(lines, fmt.Sprintf("rank %d of 3, node %d of 2, job %s, GPU 1", i, n, st.NativeID)) {
					nodes = append(nodes, fmt.Sprint(n))
				}
			}
		}
		if len(lines) != 9 || len(nodes) != 3 || !slices.Contains(nodes, "0") || !slices.Contains(nodes, "1") {
			t.Errorf("lines %q", lines)
		}
		if argv := s.ok(t, "cat "+st.Dir+"/argv.json"); !strings.Contains(argv, `"srun"`) || !strings.Contains(argv, `"`+st.Dir+`"`) {
			t.Errorf("argv %s", argv)
		}
		if receipt := s.ok(t, "cat "+st.Dir+"/receipt.json"); !strings.Contains(receipt, `"--nv"`) {
			t.Errorf("receipt %s", receipt)
		}
	})
}

func TestRanksEnd(t *testing.T) {
	s := standard
	s.need(t)
	s.unhurried(t)
	const waiting = `trap 'echo "rank $SLURM_PROCID got TERM"; exit 9' TERM; echo ready; if [ "$SLURM_PROCID" = "$FAILS" ]; then exit 7; fi; sleep 313 & wait`
	both := "rank 0 got TERM\nrank 1 got TERM"
	run := func(name, flags string, code int, meddle func(t *testing.T, id string), check func(t *testing.T, st status, out []string)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := s.submit(t, "--nodes 2 --ntasks 2 --cpus 1 "+flags, waiting)
			if meddle != nil {
				waitFor(t, patience, func() bool { return strings.Count(s.sh(t, "berth logs "+id).out, "ready") == 2 })
				meddle(t, id)
			}
			st := s.wait(t, id, code)
			out := slices.DeleteFunc(sortedLines(s.ok(t, "berth logs --stdout "+id)), func(l string) bool { return l == "ready" })
			check(t, st, out)
		})
	}
	run("one fails", "--env FAILS=1", 1, nil, func(t *testing.T, st status, out []string) {
		if st.State != "failed" || st.Exit.Code != 7 || !strings.Contains(st.Reason, "the command of rank 1 on c") || !strings.Contains(strings.Join(st.Notes, " "), "(1) were ended") || len(out) > 1 {
			t.Errorf("status %+v, output %q", st, out)
		}
	})
	run("time", "--time 20s", 124, nil, func(t *testing.T, st status, out []string) {
		if st.State != "timeout" || strings.Join(out, "\n") != both {
			t.Errorf("status %+v, output %q", st, out)
		}
	})
	run("cancel", "", 130, func(t *testing.T, id string) { s.ok(t, "berth cancel "+id) }, func(t *testing.T, st status, out []string) {
		if st.State != "cancelled" || st.Reason != "cancelled" || strings.Join(out, "\n") != both {
			t.Errorf("status %+v, output %q", st, out)
		}
	})
	run("scancel", "", 130, func(t *testing.T, id string) { s.ok(t, "scancel "+s.status(t, id).NativeID) }, func(t *testing.T, st status, out []string) {
		if st.State != "cancelled" || !strings.Contains(st.Reason, "by the scheduler") || strings.Join(out, "\n") != both {
			t.Errorf("status %+v, output %q", st, out)
		}
	})
	run("rank killed", "", 5, func(t *testing.T, id string) {
		a := s.on(t, "c2", "root", "pkill", "-KILL", "-f", "^[^ ]*berth-node[^ ]* rank --attempt "+s.status(t, id).Dir)
		if a.code != 0 {
			t.Errorf("no rank on c2: %+v", a)
		}
	}, func(t *testing.T, st status, _ []string) {
		if st.State != "error" || !strings.Contains(st.Reason, "rank 1 on c2 ended without a word") {
			t.Errorf("status %+v", st)
		}
		// Its scratch directory is removed by the next job there.
		s.wait(t, s.submit(t, "--slurm=--nodelist=c2", "true"), 0)
	})
	t.Cleanup(func() { s.quiet(t) })
}

// The output of many ranks does not mix within a line, and none is lost.
func TestRanksOutput(t *testing.T) {
	s := standard
	s.need(t)
	id := s.submit(t, "--nodes 2 --ntasks 4", `for i in $(seq 2000); do printf "%s:" "$SLURM_PROCID"; printf "%0300d\n" $i; done; printf "end $SLURM_PROCID"`)
	st := s.wait(t, id, 0)
	out := s.ok(t, "cut -d: -f1 "+st.Dir+"/stdout | sort | uniq -c | awk '{print $1, $2, $3}'; grep -cE '^[0-3]:0{296}[0-9]{4}$' "+st.Dir+"/stdout")
	if want := "2000 0 \n2000 1 \n2000 2 \n2000 3 \n1 end 0\n1 end 1\n1 end 2\n1 end 3\n8000"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	s.quiet(t)
}

// mpiPage is a part of docs/mpi-gpu.md between two texts: the page and the tests of it
// cannot differ.
func mpiPage(t *testing.T, from, to string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "mpi-gpu.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), from)
	part, _, ends := strings.Cut(rest, to)
	if !found || !ends {
		t.Fatalf("docs/mpi-gpu.md has no %q, or no %q behind it", from, to)
	}
	return part
}

// distributed is a directory on the login node with examples/distributed below it.
func (s site) distributed(t *testing.T) string {
	t.Helper()
	d := s.dir(t)
	for _, name := range []string{"ranks", "sum.py", "pmix.py"} {
		text, err := os.ReadFile(filepath.Join(root(t), "examples", "distributed", name))
		if err != nil {
			t.Fatal(err)
		}
		s.ok(t, "mkdir -p "+d+"/distributed; cat >"+d+"/distributed/"+name+" <<'E'\n"+string(text)+"E\nchmod 755 "+d+"/distributed/"+name)
	}
	return d
}

// The command of the page: four ranks find the first of them, over two nodes.
func TestDistributed(t *testing.T) {
	s := standard
	s.need(t)
	command := "berth run --image py.sif" + mpiPage(t, "\nberth run --image py.sif", "\n")
	out := s.ok(t, "cd "+s.distributed(t)+" && ln -s "+s.image+" py.sif && "+command)
	if !regexp.MustCompile(`(?m)^sum 10 of 4 ranks on c[12]$`).MatchString(out) {
		t.Errorf("%s\nwrote %q", command, out)
	}
	s.quiet(t)
}

// The task of the page: PMIx clients in the containers of two nodes find each other; they
// exchange values and wait for each other. The library is the nodes' own.
func TestPMIx(t *testing.T) {
	s := standard
	s.need(t)
	d := s.distributed(t)
	page := "+++\n" + mpiPage(t, "toml title=mpi.md\n+++\n", "```")
	task := strings.NewReplacer(`"exec python3`, `"LD_LIBRARY_PATH=/host/pmix2/lib:/host exec python3`,
		`"distributed:/d"`, `"distributed:/d", "/usr/lib/x86_64-linux-gnu:/host"`).Replace(page)
	s.ok(t, "cat >"+d+"/mpi.md <<'E'\n"+task+"E")
	id := s.ok(t, "cd "+d+" && berth submit --image "+s.image+" mpi.md")
	s.wait(t, id, 0)
	a := s.sh(t, "berth logs "+id)
	var want []string
	for rank := range 4 {
		want = append(want, fmt.Sprintf("%d: 1000 1001 1002 1003", rank))
	}
	if got := sortedLines(a.out); !slices.Equal(got, want) || a.err != "" {
		t.Errorf("stdout %q, stderr %q", got, a.err)
	}
	s.quiet(t)
}

// Slurm 22.05, which has no container program here: its srun and ours
// understand each other.
func TestRanksOld(t *testing.T) {
	s := old
	s.need(t)
	st := s.wait(t, s.ok(t, "berth submit --backend local --nodes 2 --ntasks 4 --cpus 1 -- 'echo $SLURM_PROCID; test $SLURM_PROCID != 2 || exit 3; sleep 312'"), 1)
	if st.Exit.Code != 3 || !strings.Contains(st.Reason, "of rank 2 on c") {
		t.Errorf("status %+v", st)
	}
	s.quiet(t)
}

func TestRanksRefused(t *testing.T) {
	s := standard
	s.need(t)
	berth := "berth submit --image " + s.image + " "
	s.want(t, berth+"--ntasks 2 --overlay shared -- true", 78, "would all write the overlay shared", "hint: ")
	s.want(t, berth+"--ntasks 2 --nodes 3 -- true", 2, "fewer tasks than nodes", "hint: ")
	s.want(t, berth+"--ntasks 2 --scheduler local -- true", 78, "places no tasks", "hint: ")
	s.want(t, berth+"--slurm=--ntasks=2 -- true", 2, `use ntasks in \[resources\]`)
	s.want(t, berth+"--gpus h100:1 -- true", 2, "not available", "hint: ")
}
