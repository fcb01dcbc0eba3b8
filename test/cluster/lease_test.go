//go:build cluster

package cluster

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// writer is a command that writes a line with its name and the time five times a
// second, into a file of the host and, changing its overlay, into /log.
func writer(name string, times int) string {
	return fmt.Sprintf(`echo %[1]s >>/log; for i in $(seq %[2]d); do echo "%[1]s $(date +%%s%%N)" >>/d/lines; [ $i = 1 ] && echo ready; sleep 0.2; done`, name, times)
}

// alone fails the test when two of the writers have written at one time. It
// returns when each wrote first.
func (s site) alone(t *testing.T, d string, order ...string) (first map[string]int64) {
	t.Helper()
	last := map[string]int64{}
	first = map[string]int64{}
	for line := range strings.Lines(s.ok(t, "cat "+d+"/lines") + "\n") {
		name, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			continue
		}
		if first[name] == 0 {
			first[name] = n
		}
		last[name] = n
	}
	for i, name := range order {
		if first[name] == 0 {
			t.Errorf("%s has written nothing", name)
		} else if i > 0 && first[name] <= last[order[i-1]] {
			t.Errorf("%s wrote before %s had ended", name, order[i-1])
		}
	}
	return first
}

// runner is the process that keeps a job, on its node.
func (s site) runner(t *testing.T, st status) string {
	t.Helper()
	m := regexp.MustCompile(`"pid": (\d+)`).FindStringSubmatch(s.ok(t, "cat "+st.Dir+"/claim.json"))
	if m == nil {
		t.Fatal("no claim")
	}
	return m[1]
}

// Two jobs on one overlay, on one node and on two: one writes, and the other ends
// with the holder's name, or waits for its end if it may. A runner that was
// killed loses the overlay when nothing of it can write any more, and none
// does while it shows that it lives.
func TestOverlayTwoJobs(t *testing.T) {
	each(t, []site{standard, strict}, func(t *testing.T, s site) {
		d := s.dir(t)
		flags := "--profile " + d + "/fast.toml --bind " + d + ":/d:rw"
		s.ok(t, "cd "+d+"; echo 'beat = \"2s\"' >fast.toml; if [ "+s.profile+" = strict ]; then cat /mnt/share/strict.toml >>fast.toml; fi")
		submit := func(name, more, command string) string {
			return s.ok(t, fmt.Sprintf("berth submit --retry off %s --image %s --overlay %s %s -- %s", flags, s.image, name, more, quote(command)))
		}
		for _, c := range []struct {
			name, second string
			silent       time.Duration // after the last sign of life
		}{{"one node", "c1", 6 * time.Second}, {"two nodes", "c2", 36 * time.Second}} {
			t.Run(c.name, func(t *testing.T) {
				s.ok(t, "rm -f "+d+"/lines")
				name := fmt.Sprintf("lease-%d", time.Now().UnixNano())
				t.Cleanup(func() { s.sh(t, "berth overlay rm "+name+" --wait=60s") })
				holder := submit(name, "--slurm=--nodelist=c1", writer("holder", 10000))
				s.state(t, holder, "running")
				waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+holder).out, "ready") })
				at := s.status(t, holder)
				who := "overlay " + name + " is in use by job " + holder + ", Slurm job " + at.NativeID + " on c1 since 2"

				refused := submit(name, "--slurm=--nodelist="+c.second, "true")
				if st := s.wait(t, refused, 75); !strings.HasPrefix(st.Reason, who) || !strings.Contains(st.Hint, "--overlay-wait") {
					t.Errorf("the second writer: %s, %s", st.Reason, st.Hint)
				}
				if s.want(t, "berth overlay snapshot "+name, 75, who); c.second == "c2" {
					s.want(t, "berth overlay snapshot --wait=2s "+name, 75, "waiting for overlay "+name+", held by job "+holder, who)
				}

				waits := submit(name, "--overlay-wait 10m --slurm=--nodelist="+c.second, writer("waiter", 10)+"; cat /log")
				s.state(t, waits, "running")
				waitFor(t, patience, func() bool {
					return strings.Contains(s.sh(t, "berth status "+waits).out, "waiting for\toverlay "+name+", held by job "+holder+", Slurm job "+at.NativeID+" on c1 since 2")
				})
				// More than what would do for one who is silent.
				time.Sleep(c.silent + 4*time.Second)
				if st := s.status(t, waits); st.Final {
					t.Fatalf("while the holder lives: %+v", st)
				}
				if a := s.sh(t, "grep -c waiter "+d+"/lines"); a.out != "0\n" {
					t.Fatalf("the waiter has written %s lines", a.out)
				}
				if a := s.on(t, "c1", "root", "kill", "-9", s.runner(t, at)); a.code != 0 {
					t.Fatal(a.err)
				}
				_, last, _ := strings.Cut(s.ok(t, "cat "+at.Dir+"/beat"), " ")
				sign, err := time.Parse(time.RFC3339, last)
				if err != nil {
					t.Fatal(err)
				}
				st := s.wait(t, waits, 0)
				if took := time.Unix(0, s.alone(t, d, "holder", "waiter")["waiter"]).Sub(sign); took < c.silent {
					t.Errorf("taken over %s after the last sign of life", took)
				}
				if out := s.ok(t, "berth logs "+waits); !strings.HasSuffix(out, "waiter") || st.Node == "" {
					t.Errorf("%q", out)
				}
				// Given back, it is had at once.
				holder = submit(name, "--slurm=--nodelist=c1", writer("third", 10000))
				waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+holder).out, "ready") })
				waits = submit(name, "--overlay-wait 10m --slurm=--nodelist="+c.second, writer("fourth", 3))
				waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth status "+waits).out, "waiting for\toverlay") })
				s.ok(t, "berth cancel "+holder)
				s.wait(t, waits, 0)
				s.alone(t, d, "waiter", "third", "fourth")
			})
		}
	})
}
