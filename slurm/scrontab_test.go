package slurm_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/sys/crontab"
	"berth/jobs"
	"berth/slurm"
)

// tabSite is a Slurm that has nothing but scrontab, as 24.11's behaves.
type tabSite struct {
	tab   string
	off   bool
	calls int
}

func (s *tabSite) Start(_ context.Context, c jobs.Cmd) (jobs.Process, error) {
	s.calls++
	complain := func(text string) (jobs.Process, error) {
		_, _ = fmt.Fprintln(c.Stderr, text)
		return done{1}, nil
	}
	switch {
	case c.Argv[0] != "scrontab" || len(c.Argv) != 2:
		return complain("unexpected")
	case s.off:
		return complain("scrontab: fatal: scrontab is disabled on this cluster")
	case c.Argv[1] == "-l" && s.tab == "":
		return complain("no crontab for alice")
	case c.Argv[1] == "-l":
		_, _ = fmt.Fprint(c.Stdout, s.tab)
	case c.Argv[1] == "-r":
		s.tab = ""
	default:
		b, err := os.ReadFile(c.Argv[1])
		if err != nil {
			return complain(err.Error())
		}
		s.tab = string(b)
	}
	return done{0}, nil
}

func entry(home string) slurm.Crontab {
	return slurm.Crontab{Entry: named(home), Job: "berth-follow", Argv: []string{home + "/bin/berth-node", "follow", "--all"}, Env: []string{"BERTH_HOME=" + home}, Every: 10 * time.Minute,
		Options: jobs.SlurmOptions{Account: "lab", Extra: []string{"--licenses=a:1"}}}
}

func named(home string) crontab.Entry {
	return crontab.Entry{What: "which follows the jobs of", Home: home}
}

func TestScrontab(t *testing.T) {
	site := &tabSite{}
	s := slurm.New(site, slurm.Config{Environ: []string{"PATH=/bin"}})
	want := `# begin of berth, which follows the jobs of /home/al ice
#SCRON --job-name=berth-follow --output=/dev/null --time=10 --mem=512M --account=lab --licenses=a:1
*/10 * * * * env 'BERTH_HOME=/home/al ice' '/home/al ice/bin/berth-node' follow --all
# end of berth, which follows the jobs of /home/al ice
`
	one, two := entry("/home/al ice"), entry("/home/other")
	if changed, err := s.SetCrontab(t.Context(), one); err != nil || !changed || site.tab != want {
		t.Fatalf("%v, %v:\n%s", changed, err, site.tab)
	}
	// Once more changes nothing, and the user's own lines stay as they are.
	const own = "# mine\n5 4 * * * /home/al ice/run"
	site.tab += own
	if changed, err := s.SetCrontab(t.Context(), one); err != nil || changed || site.tab != want+own {
		t.Fatalf("%v, %v:\n%s", changed, err, site.tab)
	}
	if changed, err := s.SetCrontab(t.Context(), two); err != nil || !changed || !strings.HasPrefix(site.tab, want+own+"\n# begin of berth") {
		t.Fatalf("%v, %v:\n%s", changed, err, site.tab)
	}
	one.Every = 2 * time.Hour
	if changed, err := s.SetCrontab(t.Context(), one); err != nil || !changed || !strings.Contains(site.tab, "\n0 */2 * * * env 'BERTH") || strings.Count(site.tab, "# begin of berth") != 2 {
		t.Fatalf("%v, %v:\n%s", changed, err, site.tab)
	}
	if got, err := s.Crontab(t.Context(), named("/home/other")); err != nil || strings.Count(got, "\n") != 4 {
		t.Errorf("%q, %v", got, err)
	}
	for _, home := range []string{"/home/al ice", "/home/other"} {
		if changed, err := s.DropCrontab(t.Context(), named(home)); err != nil || !changed {
			t.Fatal(changed, err)
		}
		if changed, err := s.DropCrontab(t.Context(), named(home)); err != nil || changed {
			t.Fatal(changed, err)
		}
	}
	if site.tab != own+"\n" {
		t.Errorf("%q", site.tab)
	}
	// The last one leaves no empty crontab.
	site.tab = want
	if changed, err := s.DropCrontab(t.Context(), named("/home/al ice")); err != nil || !changed || site.tab != "" {
		t.Errorf("%v, %v: %q", changed, err, site.tab)
	}
}

func TestScrontabRefused(t *testing.T) {
	home := "/home/ada"
	good := entry(home)
	site := &tabSite{}
	s := slurm.New(site, slurm.Config{Environ: []string{"PATH=/bin"}})
	for name, change := range map[string]func(*slurm.Crontab){
		"an interval":   func(c *slurm.Crontab) { c.Every = 7 * time.Minute },
		"none":          func(c *slurm.Crontab) { c.Every = 0 },
		"seconds":       func(c *slurm.Crontab) { c.Every = 90 * time.Second },
		"a percent":     func(c *slurm.Crontab) { c.Entry.Home = "/home/a%b" },
		"a line break":  func(c *slurm.Crontab) { c.Argv[0] = "x\n* * * * * evil" },
		"in an option":  func(c *slurm.Crontab) { c.Options.Account = "a\n* * * * * evil" },
		"its own":       func(c *slurm.Crontab) { c.Options.Extra = []string{"--output=x"} },
		"blanks":        func(c *slurm.Crontab) { c.Options.Partition = "a b" },
		"a dependency":  func(c *slurm.Crontab) { c.Options.Extra = []string{"--dependency=afterok:1"} },
		"a home's line": func(c *slurm.Crontab) { c.Entry.Home = "/home/x\n* * * * * evil" },
	} {
		c := good
		c.Argv = slices.Clone(good.Argv)
		change(&c)
		if _, err := s.SetCrontab(t.Context(), c); err == nil || site.calls > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What someone has cut is left alone.
	if _, err := s.SetCrontab(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(site.tab, "\n")
	for _, tab := range []string{strings.Join(lines[:3], ""), strings.Join(lines[1:], ""), site.tab + site.tab, lines[0] + site.tab} {
		site.tab = tab
		for range 2 {
			if _, err := s.DropCrontab(t.Context(), named(home)); jobs.KindOf(err) != jobs.KindConfig || site.tab != tab {
				t.Errorf("%v: %q", err, site.tab)
			}
		}
	}
	site.off = true
	if _, err := s.Crontab(t.Context(), named(home)); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(jobs.HintOf(err), "crontab -e") {
		t.Error(err)
	}
}
