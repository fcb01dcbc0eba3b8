package stubs

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/jobs"
	"berth/slurm/options"
)

const script = "#!/bin/sh\n#SBATCH --time=10 -c 2\n# a comment\n#SBATCH --mem=2G --job-name=\"of a \\\"script\\\"\" # why\necho hi\n#SBATCH --uid=0\n"

// What a task may ask for, in the forms in which people write it; words win over a script.
func TestWish(t *testing.T) {
	run := func(args ...string) jobs.Command {
		return jobs.Command{Argv: append([]string{"/bin/sh", "-c", runScript, "sbatch"}, args...)}
	}
	for name, c := range map[string]struct {
		stub, script string
		words        []string
		want         jobs.Wish
	}{
		"a script": {sbatch, script, []string{"dir/job.sh", "-x", "a b"},
			jobs.Wish{Name: `of a "script"`, Script: script, Command: run("-x", "a b"), Resources: jobs.Resources{CPUs: 2, Memory: 2 * jobs.GiB, Time: 10 * time.Minute}}},
		"a script by stdin": {sbatch, "#!/bin/sh\n", nil, jobs.Wish{Script: "#!/bin/sh\n", Command: run(), Name: "script"}},
		"words win": {sbatch, script, []string{"-t", "1:30:00", "-c1", "--mem", "512", "-Jx", "--parsable", "-W", "job.sh"},
			jobs.Wish{Name: "x", Script: script, Command: run(), Resources: jobs.Resources{CPUs: 1, Memory: 512 * jobs.MiB, Time: 90 * time.Minute}, Bare: true, Waits: true}},
		"wrap": {sbatch, "", []string{"--wrap=a\n\tb", "-p", "gpu", "--gpus=a100:1", "-n1", "-o", "out/%j.txt"},
			jobs.Wish{Command: jobs.Command{Shell: "a\n\tb"}, Partition: "gpu", Resources: jobs.Resources{GPUs: "a100:1"}, Output: "out/%j.txt"}},
		"srun": {srun, "", []string{"-t1-0", "--", "--odd", "--uid=0"},
			jobs.Wish{Command: jobs.Command{Argv: []string{"--odd", "--uid=0"}}, Resources: jobs.Resources{Time: 24 * time.Hour}, Waits: true, Shows: true}},
		"narrower": {sbatch, "#!/bin/sh\n#SBATCH --network=allow --allow=a.test:80,443 --scope src/\n", []string{"--allow", "b.test", "--scope=*.md", "job.sh"},
			jobs.Wish{Name: "job.sh", Script: "#!/bin/sh\n#SBATCH --network=allow --allow=a.test:80,443 --scope src/\n", Command: run(), Network: "allow",
				Allow: []string{"a.test:80,443", "b.test"}, Scope: []string{"src/", "*.md"}}},
		"an image": {sbatch, "#!/bin/sh\n#SBATCH --image /a.sif\n", []string{"job.sh"},
			jobs.Wish{Name: "job.sh", Script: "#!/bin/sh\n#SBATCH --image /a.sif\n", Command: run(), Image: "/a.sif"}},
		"srun in an image": {srun, "", []string{"--image=docker://debian:12", "true"},
			jobs.Wish{Command: jobs.Command{Argv: []string{"true"}}, Image: "docker://debian:12", Waits: true, Shows: true}},
		"after": {srun, "", []string{"--dependency=afterok:1:2,afterany:3", "true"}, jobs.Wish{Command: jobs.Command{Argv: []string{"true"}}, Waits: true, Shows: true,
			After: []jobs.ChildAfter{{Child: "1", Need: jobs.NeedOK}, {Child: "2", Need: jobs.NeedOK}, {Child: "3", Need: jobs.NeedAny}}}},
		"squeue":  {squeue, "", []string{"-hj", "1,2", "--me"}, jobs.Wish{Verb: jobs.WishList, Jobs: []string{"1", "2"}, Bare: true}},
		"scancel": {scancel, "", []string{"3"}, jobs.Wish{Verb: jobs.WishCancel, Jobs: []string{"3"}}},
	} {
		if got, err := (Slurm{}).Wish(c.stub, c.words, c.script); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v\n%+v\nwant\n%+v", name, err, got, c.want)
		}
	}
}

// Whatever is not in the table is refused by its name, in words and in a script.
func TestRefused(t *testing.T) {
	for _, word := range []string{
		"--uid=0", "--gid=0", "--export=ALL", "--export-file=/etc/passwd", "--chdir=/", "-D/", "--array=1-9", "-a", "--part=gpu", "--tim=1", "--qos=high", "-A", "--account=x",
		"--get-user-env", "--container=/x", "--signal=9", "--comment=x", "--test-only", "--clusters=all", "-M", "--J=x", "--=x", "--nodelist=c1", "--reservation=r", "--exclusive",
		"--begin=now", "--hold", "--bogus", "-?", "--prolog=/x", "--x11", "--ntasks=2", "-N2", "--time=99999:00:00", "--time=0", "--time=UNLIMITED", "--mem=0", "--mem=9999999T",
		"--cpus-per-task=-1", "--output=/home/alice/.bashrc", "--output=../x", "-e/etc/x", "--dependency=singleton", "--dependency=after:1+5", "--dependency=afterok", "--name", "--wait=1",
		"--job-name=", "--job-name=a\nb", "--gpus", "--image", "--image=", "--image=/a\x00", "--container-image=x", "--mem=1\x1b[2J", "\x00",
	} {
		for where, err := range map[string]error{
			"a word":   second((Slurm{}).Wish(sbatch, []string{word}, "#!/bin/sh\n")),
			"a script": second((Slurm{}).Wish(sbatch, []string{"job.sh"}, "#!/bin/sh\n#SBATCH "+word+"\ntrue\n")),
		} {
			if where == "a script" && strings.ContainsAny(word, "\n") {
				continue // two lines
			}
			if jobs.KindOf(err) != jobs.KindUsage || strings.ContainsAny(err.Error(), "\x1b\n\x00") || len(err.Error()) > 400 {
				t.Errorf("%q in %s: %v", word, where, err)
			}
		}
	}
	for _, text := range []string{"", "\x7fELF\x02", "echo hi\n", "#!/bin/sh\r\necho\r\n", "#!/bin/sh\n\x00", "#!/bin/sh\n#SBATCH 'x\n", "#!/bin/sh\n#SBATCH job.sh\n", "#!/bin/sh\n#SBATCH --wrap=x\x01\n"} {
		if err := second((Slurm{}).Wish(sbatch, []string{"job.sh"}, text)); jobs.KindOf(err) != jobs.KindUsage {
			t.Errorf("%q: %v", text, err)
		}
	}
	for stub, words := range map[string][]string{srun: {"--wrap=x", "true"}, squeue: {"-o", "%i"}, scancel: {}, sbatch: {"--wrap=a\x1bb"}} {
		if err := second((Slurm{}).Wish(stub, words, "")); jobs.KindOf(err) != jobs.KindUsage {
			t.Errorf("%s %q: %v", stub, words, err)
		}
	}
}

func second(_ jobs.Wish, err error) error { return err }

// Each option of the table but berth's own is one of sbatch's, and the stubs are told which take a value.
func TestTable(t *testing.T) {
	all := options.Names()
	for _, o := range table {
		if slices.Contains(o.of, sbatch) && !o.own && (!slices.Contains(all, o.long) || o.short != "" && options.Long("-"+o.short) != o.long) {
			t.Errorf("--%s, -%s is none of sbatch's", o.long, o.short)
		}
	}
	i := slices.IndexFunc(Slurm{}.List(), func(s jobs.Stub) bool { return s.Name == sbatch })
	if s := (Slurm{}).List()[i]; !s.Script || !slices.Contains(s.Takes, "-c") || slices.Contains(s.Takes, "--parsable") {
		t.Errorf("%+v", s)
	}
}

func TestSays(t *testing.T) {
	if out, _ := (Slurm{}).Says(sbatch, 3, false, nil); out != "Submitted batch job 3\n" {
		t.Error(out)
	}
	if out, _ := (Slurm{}).Says(sbatch, 3, true, nil); out != "3\n" {
		t.Error(out)
	}
	if _, e := (Slurm{}).Says(sbatch, 0, false, errors.New("no\x1b")); e != "sbatch: error: no \n" {
		t.Errorf("%q", e)
	}
	if got, err := (Slurm{}).Output("%x-%j.out", &jobs.Child{Number: 7, Name: "a/b"}); err != nil || got != "a_b-7.out" {
		t.Error(got, err)
	}
	for name, pattern := range map[string]string{"..": "out/%x/%x/x", ".": ".%x/x"} { // what it becomes counts
		if got, err := (Slurm{}).Output(pattern, &jobs.Child{Number: 7, Name: name}); jobs.KindOf(err) != jobs.KindUsage {
			t.Errorf("%s is %s, %v", pattern, got, err)
		}
	}
	rows := []jobs.ChildRow{{Number: 1, Name: "x", State: jobs.StateRunning, Ran: 61 * time.Second}}
	if got := (Slurm{}).Queue(rows, true); !strings.Contains(got, " R       1:01 ") || !strings.Contains(got, " n/a ") || strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
	rows[0].Partition = "gpu"
	if got := (Slurm{}).Queue(rows, true); strings.Fields(got)[1] != "gpu" {
		t.Errorf("%q", got)
	}
}

func FuzzWish(f *testing.F) {
	f.Add("--time=1 -c 2", script)
	f.Add("--wrap=x", "")
	f.Fuzz(func(t *testing.T, words, script string) {
		for _, stub := range []string{sbatch, srun, squeue, scancel} {
			w, err := (Slurm{}).Wish(stub, strings.Split(words, " "), script)
			if err != nil && jobs.KindOf(err) != jobs.KindUsage {
				t.Errorf("%v", err)
			}
			for _, text := range []string{w.Name, w.Partition, w.Output, w.Error, w.Resources.GPUs} {
				if err == nil && jobs.CheckText("", text) != nil {
					t.Errorf("%q", text)
				}
			}
		}
	})
}
