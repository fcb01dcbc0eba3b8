package apptainer

import (
	"encoding/csv"
	"strings"
	"testing"

	"berth/jobs"

	"github.com/google/go-cmp/cmp"
)

const guest = "/home/alice/.local/state/berth/bin/berth-node-0123"

func TestArgv(t *testing.T) {
	head := []string{"apptainer", "exec", "--containall", "--no-home", "--cleanenv", "--no-eval"}
	guestMount := []string{"--mount", "type=bind,source=" + guest + ",destination=/.berth/node,readonly"}
	tail := []string{
		"--mount", "type=bind,source={empty},destination=/.singularity.d/env,readonly",
		"--mount", "type=bind,source={keys},destination=/proc/keys,readonly",
		"--mount", "type=bind,source={keys},destination=/proc/key-users,readonly",
		"--mount", "type=bind,source={cgroups},destination=/sys/fs/cgroup,readonly",
		"{image}", "/.berth/node", "guest"}
	for name, c := range map[string]struct {
		place jobs.Invocation
		want  [][]string
	}{
		"plain": {jobs.Invocation{}, [][]string{head, {"--pwd", "/tmp", "--workdir", "{scratch}", "--overlay", "{overlay}"}, guestMount, tail}},
		"a newer version": {jobs.Invocation{Place: jobs.Place{Profile: jobs.Profile{Versions: jobs.Versions{Apptainer: "1.4.5"}}}},
			[][]string{head, {"--cwd", "/tmp", "--workdir", "{scratch}", "--overlay", "{overlay}"}, guestMount, tail}},
		"nvidia": {jobs.Invocation{Place: jobs.Place{GPU: "nvidia"}},
			[][]string{head, {"--pwd", "/tmp", "--workdir", "{scratch}", "--overlay", "{overlay}", "--nv"}, guestMount, tail}},
		"amd": {jobs.Invocation{Place: jobs.Place{GPU: "amd"}},
			[][]string{head, {"--pwd", "/tmp", "--workdir", "{scratch}", "--overlay", "{overlay}", "--rocm"}, guestMount, tail}},
		"hostname": {jobs.Invocation{Place: jobs.Place{Hostname: "box"}},
			[][]string{head, {"--pwd", "/tmp", "--workdir", "{scratch}", "--overlay", "{overlay}", "--hostname", "box"}, guestMount, tail}},
		"hostile mounts": {jobs.Invocation{
			Place: jobs.Place{
				Mounts: []jobs.Mount{
					{Source: "/a b", Destination: "/data", Writable: true},
					{Source: "/a,b:c", Destination: "/x,readonly"},
					{Source: `/a"b'c`, Destination: "/$HOME;`id`"},
					{Source: `/back\slash`, Destination: "/{image}"},
					{Source: "/größe/*?[x]", Destination: "/ leading"},
					{Source: "/--overlay", Destination: "/=x"},
				},
			},
		}, [][]string{head, {"--pwd", "/tmp", "--workdir", "{scratch}", "--overlay", "{overlay}"}, guestMount, {
			"--mount", "type=bind,source=/a b,destination=/data",
			"--mount", `type=bind,"source=/a,b:c","destination=/x,readonly",readonly`,
			"--mount", `type=bind,"source=/a""b'c",destination=/$HOME;` + "`id`" + `,readonly`,
			"--mount", `type=bind,source=/back\slash,destination=/{image},readonly`,
			"--mount", "type=bind,source=/größe/*?[x],destination=/ leading,readonly",
			"--mount", "type=bind,source=/--overlay,destination=/=x,readonly",
		}, tail}},
	} {
		t.Run(name, func(t *testing.T) {
			c.place.Guest = guest
			got, err := (&Backend{}).Argv(c.place, []string{"guest"})
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, part := range c.want {
				want = append(want, part...)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestArgvRefuses(t *testing.T) {
	for name, place := range map[string]jobs.Invocation{
		"line break":           {Place: jobs.Place{Mounts: []jobs.Mount{{Source: "/a\nb", Destination: "/x"}}}},
		"escape":               {Place: jobs.Place{Mounts: []jobs.Mount{{Source: "/a", Destination: "/\x1b[2Jx"}}}},
		"NUL":                  {Place: jobs.Place{Mounts: []jobs.Mount{{Source: "/a\x00b", Destination: "/x"}}}},
		"not UTF-8":            {Place: jobs.Place{Mounts: []jobs.Mount{{Source: "/a\xff", Destination: "/x"}}}},
		"relative source":      {Place: jobs.Place{Mounts: []jobs.Mount{{Source: "a", Destination: "/x"}}}},
		"relative destination": {Place: jobs.Place{Mounts: []jobs.Mount{{Source: "/a", Destination: "x"}}}},
		"no destination":       {Place: jobs.Place{Mounts: []jobs.Mount{{Source: "/a"}}}},
		"unknown GPU":          {Place: jobs.Place{GPU: "abacus"}},
		"no guest":             {Guest: "-"},
	} {
		switch place.Guest {
		case "":
			place.Guest = guest
		case "-":
			place.Guest = ""
		}
		argv, err := (&Backend{}).Argv(place, nil)
		if argv != nil || jobs.CodeOf(err) != jobs.CodeUsage {
			t.Errorf("%s: %q, %v", name, argv, err)
			continue
		}
		if strings.ContainsAny(err.Error(), "\n\x1b\x00") {
			t.Errorf("%s: the error repeats it: %q", name, err)
		}
	}
}

// FuzzMount holds that a reader of CSV, which Apptainer is, finds the paths as
// they were, and nothing beside them.
func FuzzMount(f *testing.F) {
	f.Add("/a", "/b", true)
	f.Add(`/a,"b`, "/c d:e", false)
	f.Add(`/"`, `/\.`, false)
	f.Fuzz(func(t *testing.T, source, destination string, writable bool) {
		w, err := jobs.Mount{Source: source, Destination: destination, Writable: writable}.Word()
		if err != nil {
			return
		}
		want := []string{"type=bind", "source=" + source, "destination=" + destination}
		if !writable {
			want = append(want, "readonly")
		}
		all, err := csv.NewReader(strings.NewReader(w)).ReadAll()
		if err != nil || len(all) != 1 {
			t.Fatalf("%q is read as %q, %v", w, all, err)
		}
		if d := cmp.Diff(want, all[0]); d != "" {
			t.Error(d)
		}
	})
}

func TestBackend(t *testing.T) {
	b := &Backend{}
	if b.Name() != "singularity" || b.Level() != jobs.LevelFS {
		t.Errorf("%s, %s", b.Name(), b.Level())
	}
}
