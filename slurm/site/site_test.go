package site

import (
	"os"
	"slices"
	"testing"
	"time"
)

func TestVersion(t *testing.T) {
	for out, want := range map[string]string{"slurm 24.11.5\n": "24.11.5", "slurm-wlm 22.05.8": "22.05.8", "Welcome\n  slurm 23.02.7\nbye": "23.02.7", "slurm": "", "": "", "slurm next": "", "see slurm 24.11": ""} {
		if got := Version(out); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}

func TestEnviron(t *testing.T) {
	got := Environ([]string{"PATH=/bin", "SLURM_JOB_ID=7", "SLURM_CONF=/x", "SLURM_CONF_SERVER=s", "SLURM_CONFUSED=x", "SSTAT_FORMAT=x", "SBATCH_ACCOUNT=y", "SQUEUE_FORMAT=z", "LANG=de", "LC_TIME=de", "HOME=/h"})
	if want := []string{"PATH=/bin", "SLURM_CONF=/x", "SLURM_CONF_SERVER=s", "HOME=/h", "LC_ALL=C"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPartitions(t *testing.T) {
	b, err := os.ReadFile("../examine/testdata/partitions-24.11.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := Partitions("a banner\n" + string(b))
	if len(all) != 2 || all[0]["PartitionName"] != "main" || all[0]["Default"] != "YES" || all[1]["MaxTime"] != "1-00:00:00" {
		t.Errorf("%v", all)
	}
}

func TestAssociations(t *testing.T) {
	got := Associations("lab||10|40|normal,short|\n\nnonsense\n|x|||\nside|gpu||||\n")
	if len(got) != 2 || got[0].Account != "lab" || got[0].MaxJobs != "10" || got[0].MaxSubmit != "40" || !slices.Equal(got[0].QOS, []string{"normal", "short"}) || got[1].Partition != "gpu" || got[1].QOS != nil {
		t.Errorf("%+v", got)
	}
}

func TestSeconds(t *testing.T) {
	for s, want := range map[string]time.Duration{"30 sec": 30 * time.Second, "5": 5 * time.Second, "-1 sec": -1, "none": -1, "": -1} {
		got, ok := Seconds(s)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %v, %v", s, got, ok)
		}
	}
}
