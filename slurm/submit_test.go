package slurm_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"berth/jobs"
)

func TestSubmitFindsTheID(t *testing.T) {
	for name, c := range map[string]struct {
		stdout      string
		code        int
		wait        error
		id, cluster string
	}{
		"plain":                  {stdout: "123\n", id: "123"},
		"cluster":                {stdout: "123;two\n", id: "123", cluster: "two"},
		"banners around":         {stdout: "*** Welcome. ***\n12 jobs are waiting\n4711\n*** Bye 99 ***\n", id: "4711"},
		"the last one counts":    {stdout: "2026\n4711\n", id: "4711"},
		"blanks behind":          {stdout: "4711 \r\n", id: "4711"},
		"wrapper's own exit":     {stdout: "4711\n", code: 3, id: "4711"},
		"end unknown, id heard":  {stdout: "4711\n", wait: errors.New("connection lost"), id: "4711"},
		"zero is no id, next is": {stdout: "5\n0\n", id: "5"},
	} {
		t.Run(name, func(t *testing.T) {
			s := on(t, step{argv: "sbatch --parsable /x y/script.sh", stdout: c.stdout, code: c.code, wait: c.wait})
			h, err := scheduler(s).Submit(t.Context(), launch(), "/x y/script.sh")
			if err != nil || h.NativeID != c.id || h.Cluster != c.cluster || h.Name != launch().Name || h.Scheduler != "slurm" || h.Version != 1 {
				t.Errorf("%+v, %v", h, err)
			}
			for _, bad := range []string{"SLURM_JOB_ID=", "SBATCH_", "SQUEUE_", "SACCT_", "SLURM_TIME_FORMAT=", "LC_TIME=", "LANG=", "TZ="} {
				if slices.ContainsFunc(s.envs[0], func(e string) bool { return strings.HasPrefix(e, bad) }) {
					t.Errorf("%s in %v", bad, s.envs[0])
				}
			}
			for _, good := range []string{"PATH=/bin", "SLURM_CONF=/etc/x", "SLURM_CLUSTERS=two", "LC_ALL=C", "SLURM_EXIT_ERROR=94"} {
				if !slices.Contains(s.envs[0], good) {
					t.Errorf("no %s in %v", good, s.envs[0])
				}
			}
		})
	}
}

// The texts are those of real clusters.
func TestSubmitRefusals(t *testing.T) {
	failed := "sbatch: error: Batch job submission failed: "
	noise := strings.Repeat("*** NOTE of the site ***\n", 6)
	for name, c := range map[string]struct {
		step step
		more []step
		kind jobs.Kind
		hint string
	}{
		"partition": {step{stderr: "sbatch: error: invalid partition specified: nope\n" + failed + "Invalid partition name specified\n", code: 94},
			[]step{{argv: "sinfo -h -o %R", stdout: "main\nurgent\nmain\n"}}, jobs.KindRejected, "the partitions here are: main, urgent"},
		"partition, and sinfo hangs": {step{stderr: failed + "Invalid partition name specified\n", code: 94},
			[]step{{argv: "sinfo -h -o %R", code: 1}}, jobs.KindRejected, "see the partitions with: sinfo"},
		"account": {step{stderr: failed + "Invalid account or account/partition combination specified\n", code: 94},
			[]step{{argv: "sacctmgr -nP show assoc user=alice format=account", stdout: "research\n"}}, jobs.KindRejected, "your accounts here are: research"},
		"qos": {step{stderr: failed + "Invalid qos specification\n", code: 94}, nil, jobs.KindRejected, "sacctmgr show assoc user=alice"},
		"memory": {step{stderr: "sbatch: error: Memory specification can not be satisfied\n" + failed + "Requested node configuration is not available\n", code: 94},
			nil, jobs.KindRejected, "no node offers this: --cpus-per-task=2 --mem=1024M"},
		"disk": {step{stderr: "sbatch: error: Temporary disk specification can not be satisfied\n" + failed + "Requested node configuration is not available\n", code: 94},
			nil, jobs.KindRejected, `forbid = ["tmp"]`},
		"feature": {step{stderr: failed + "Invalid feature specification\n", code: 94}, nil, jobs.KindRejected, "no node offers"},
		"plugin": {step{stdout: "*** Welcome. ***\n*** Questions? ***\n", stderr: "*** 12 % used ***\nsbatch: error: Do not use --mem on this cluster: memory is given out with CPUs.\n" + failed + "Unspecified error\n*** sbatch: done ***\n", code: 1},
			nil, jobs.KindRejected, `put forbid = ["mem"] into its profile`},
		"directory":  {step{stderr: "sbatch: error: getcwd failed: No such file or directory\n", code: 1}, nil, jobs.KindRejected, "the current directory was removed"},
		"requeue":    {step{stderr: "sbatch: error: --requeue is not allowed here\n" + failed + "Unspecified error\n", code: 94}, nil, jobs.KindRejected, `forbid = ["requeue"]`},
		"dependency": {step{stderr: "sbatch: error: do not use --dependency\n", code: 94}, nil, jobs.KindRejected, `forbid = ["dependency"]`},
		"no option":  {step{stderr: "sbatch: error: dependencies are switched off here\n", code: 94}, nil, jobs.KindRejected, "berth doctor --on-node --write-profile"},
		"no account": {step{stderr: "sbatch: error: you must give --account\n" + failed + "Unspecified error\n", code: 94},
			[]step{{argv: "sacctmgr -nP show assoc user=alice format=account", stdout: "research\n"}}, jobs.KindRejected, `put account = "research" below [slurm]`},
		"one of accounts": {step{stderr: "sbatch: error: you must give --account\n", code: 94},
			[]step{{argv: "sacctmgr -nP show assoc user=alice format=account", stdout: "research\nteach\n"}}, jobs.KindRejected, "your accounts here are: research, teach"},
		"a wrapper that is content": {step{stdout: noise + "[sbatch.real] " + failed + "Invalid qos specification\n" + noise, stderr: noise}, nil, jobs.KindRejected, "sacctmgr show assoc user=alice"},
		"a wrapper, on stderr":      {step{stdout: noise, stderr: noise + "allocation failure: Invalid feature specification\n" + noise}, nil, jobs.KindRejected, "no node offers"},
		"a wrapper, and no answer":  {step{stdout: noise + failed + "Socket timed out on send/recv operation\n" + noise}, nil, jobs.KindUnclear, "by name"},
		"a banner of failures":      {step{stdout: "*** the old server: Connection refused ***\n", stderr: failed + "Invalid qos specification\n", code: 94}, nil, jobs.KindRejected, "sacctmgr"},
		"option":                    {step{stderr: "sbatch: unrecognized option '--bogus'\nTry \"sbatch --help\" for more information\n", code: 255}, nil, jobs.KindRejected, "extra sbatch options"},
		"time":                      {step{stderr: "sbatch: error: Invalid --time specification\n", code: 255}, nil, jobs.KindRejected, "extra sbatch options"},
		"limit":                     {step{stderr: "sbatch: error: AssocMaxSubmitJobLimit\n" + failed + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n", code: 94}, nil, jobs.KindAgain, "--retry off"},
		"limit of a QOS":            {step{stderr: "sbatch: error: QOSMaxSubmitJobPerUserLimit\n" + failed + "Job violates accounting/QOS policy\n", code: 94}, nil, jobs.KindAgain, "--retry off"},
		"full":                      {step{stderr: failed + "Slurm temporarily unable to accept job, sleeping and retrying\n", code: 94}, nil, jobs.KindAgain, "squeue --me"},
		"rate":                      {step{stderr: failed + "Rate limit exceeded, please retry momentarily\n", code: 94}, nil, jobs.KindAgain, ""},
		"down":                      {step{stderr: failed + "Unable to contact slurm controller (connect failure)\n", code: 94}, nil, jobs.KindInfra, "scontrol ping"},
		"no name": {step{stderr: "sbatch: error: _xgetaddrinfo: getaddrinfo() failed: Name or service not known: No error, attempt number 5\n" + failed + "Unable to contact slurm controller (connect failure)\n", code: 94},
			nil, jobs.KindInfra, "scontrol ping"},
		"timed out":     {step{stderr: failed + "Socket timed out on send/recv operation\n", code: 94}, nil, jobs.KindUnclear, "by name"},
		"zero bytes":    {step{stderr: failed + "Zero Bytes were transmitted or received\n", code: 94}, nil, jobs.KindUnclear, "by name"},
		"receive":       {step{stderr: failed + "Unable to contact slurm controller (receive failure)\n", code: 94}, nil, jobs.KindUnclear, "by name"},
		"no word":       {step{code: 0}, nil, jobs.KindUnclear, "by name"},
		"wrapper fails": {step{stderr: "quota tool: disk full\n", code: 1}, nil, jobs.KindUnclear, "by name"},
		"killed":        {step{hang: true}, nil, jobs.KindUnclear, "by name"},
		"end unknown":   {step{wait: errors.New("lost")}, nil, jobs.KindUnclear, "by name"},
		"missing":       {step{start: missingProgram("sbatch")}, nil, jobs.KindInfra, "--scheduler local"},
		"missing there": {step{stderr: "bash: sbatch: command not found\n", code: 127}, nil, jobs.KindInfra, "--scheduler local"},
		"cannot start":  {step{start: errors.New("fork: no memory")}, nil, jobs.KindInfra, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.step.argv = "sbatch --parsable /s"
			h, err := scheduler(on(t, append([]step{c.step}, c.more...)...)).Submit(t.Context(), launch(), "/s")
			if jobs.KindOf(err) != c.kind || !strings.Contains(jobs.HintOf(err), c.hint) {
				t.Errorf("handle %+v, kind %d, error %v\nhint %s", h, jobs.KindOf(err), err, jobs.HintOf(err))
			}
			if err != nil && strings.Contains(err.Error(), "***") {
				t.Errorf("the site's banner is in the error: %v", err)
			}
			if err != nil && strings.HasSuffix(err.Error(), ": ") {
				t.Errorf("an error without an end: %q", err)
			}
		})
	}
}

// TestTestOnly: only what Slurm says of the job itself is a refusal.
func TestTestOnly(t *testing.T) {
	for name, c := range map[string]struct {
		step step
		kind jobs.Kind
	}{
		"taken":              {step{stderr: "sbatch: Job 99 to start at 2030-01-01T10:00:00 using 1 processors on nodes c1 in partition main\n"}, 0},
		"taken, in a banner": {step{stdout: "*** NOTE ***\nsbatch: Job 99 to start at 2030-01-01T10:00:00 using 1 processors on nodes c1\n*** NOTE ***\n"}, 0},
		"a plugin":           {step{stderr: "sbatch: error: no requeue here\nallocation failure: Unspecified error\n", code: 1}, jobs.KindRejected},
		"the controller":     {step{stderr: "allocation failure: Requested node configuration is not available\n", code: 1}, jobs.KindRejected},
		"a limit":            {step{stderr: "allocation failure: AssocMaxSubmitJobLimit\n", code: 1}, jobs.KindAgain},
		"busy":               {step{stderr: "allocation failure: Requested nodes are busy\n", code: 1}, jobs.KindInfra},
		"a wrapper":          {step{stderr: "sbatch: error: unknown option --test-only\n", code: 1}, jobs.KindInfra},
	} {
		t.Run(name, func(t *testing.T) {
			c.step.argv = "sbatch --test-only /s"
			if err := scheduler(on(t, c.step)).TestOnly(t.Context(), launch(), "/s"); (err != nil) != (c.kind != 0) || err != nil && jobs.KindOf(err) != c.kind {
				t.Errorf("kind %d: %v", jobs.KindOf(err), err)
			}
		})
	}
}
