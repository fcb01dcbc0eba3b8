package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/engine"
	"berth/internal/node/nodebin"
	"berth/internal/sys/crontab"
	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/internal/sys/socket"
	"berth/jobs"
	"berth/slurm"

	"al.essio.dev/pkg/shellescape"
	"github.com/spf13/cobra"
)

// Who may look at what is due, in the order in which they are tried.
const (
	byScrontab = "scrontab"
	byJobs     = "jobs"
	byCrontab  = "crontab"
)

// installation is the file that notes who looks at what is due.
type installation struct {
	Version int       `json:"version"`
	By      string    `json:"by"`
	Host    string    `json:"host"`
	Every   string    `json:"every"`
	Time    time.Time `json:"time"`
}

// installed reads it; nil is that nothing is installed.
func installed(home string) *installation {
	b, err := disk.ReadRegular(installedFile(home), 1<<20)
	var i installation
	if err != nil || json.Unmarshal(b, &i) != nil {
		return nil
	}
	return &i
}

func setInstalled(home string, i *installation) error {
	path := installedFile(home)
	if i == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	b, err := json.MarshalIndent(i, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = disk.Replace(path, append(b, '\n'), 0o600)
	}
	return err
}

type installFlags struct {
	every           string
	cron, uninstall bool
	options         jobs.SlurmOptions
}

func (a *app) scheduleInstallCmd() *cobra.Command {
	var o installFlags
	c := &cobra.Command{
		Use: "install", Short: "have what is due looked at regularly, by the cluster or by cron",
		Long: `Have berth schedule tick called regularly, whoever is logged in. It is done by the first
of these that the site has:

1. scrontab: Slurm itself starts a small job at each --every.
2. A small job that waits until the next schedule is due, submits its successor, and
   submits what is due. It asks for 512 MiB, and ends within 10 minutes.

Cron of this machine is taken with --crontab alone: sites look at what their login nodes
run. There is no daemon in any of them. Calling it again changes what is there; do so
after an upgrade of berth. --uninstall removes all of it, and leaves the schedules.
` + exitHelp + `0 done, 5 the scheduler or cron could not be asked, 78 the site has none of
these, or its nodes may not submit jobs.`,
		Example: `  berth schedule install
  berth schedule install --crontab --every 5m
  berth schedule install --uninstall`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := a.config(cmd); err != nil { // the profile says what the site takes
				return err
			}
			e, err := a.engine()
			if err != nil {
				return err
			}
			if o.uninstall {
				return a.uninstall(cmd.Context(), e)
			}
			return a.install(cmd.Context(), e, &o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.every, "every", "10m", "look every `TIME`, such as 5m or 1h; of jobs: at least so long after the last look")
	f.BoolVar(&o.cron, "crontab", false, "by cron of this machine")
	f.BoolVar(&o.uninstall, "uninstall", false, "remove what was installed")
	f.StringVar(&o.options.Partition, "partition", "", "of the jobs: partition `NAME` (default: the site's)")
	f.StringVar(&o.options.Account, "account", "", "of the jobs: account `NAME` to charge (default: yours)")
	f.StringVar(&o.options.QOS, "qos", "", "of the jobs: quality of service `NAME` (default: the site's)")
	f.String("profile", "", "site profile: a `NAME` or the path of a file ($BERTH_PROFILE)")
	return c
}

func ticks(home string) crontab.Entry {
	return crontab.Entry{What: "which starts the schedules of", Home: home}
}

// environment is what a tick has of this process's: where its files are.
func environment(home string, more ...string) []string {
	env := []string{"BERTH_HOME=" + home}
	for _, name := range append(more, "XDG_CONFIG_HOME", "BERTH_PROFILE_PATH") {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func (a *app) install(ctx context.Context, e *engine.Engine, o *installFlags) error {
	every, err := jobs.ParseDuration(o.every)
	if err == nil {
		_, err = crontab.Interval(every)
	}
	if err != nil {
		return usage("--every: %v", err)
	}
	home := e.Store.Home()
	host, _ := os.Hostname()
	note := &installation{Version: 1, By: byCrontab, Host: host, Every: shortDuration(every), Time: a.now().UTC()}
	if was := installed(home); was != nil && (was.By != byCrontab || was.Host != host || !o.cron) {
		if err := a.uninstall(ctx, e); err != nil {
			return err
		}
	}
	if o.cron {
		err = a.installCrontab(ctx, home, every)
	} else {
		err = a.installCluster(ctx, e, o, every, note)
	}
	if err != nil {
		return err
	}
	return setInstalled(home, note)
}

// installCluster has the cluster do it, and notes how.
func (a *app) installCluster(ctx context.Context, e *engine.Engine, o *installFlags, every time.Duration, note *installation) error {
	home := e.Store.Home()
	p, err := a.cfg.ReadProfile()
	if err != nil {
		return err
	}
	if p.NodesMute {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "the profile " + p.Name + " says that nodes may not submit jobs, so no job can submit what is due",
			Hint: "on a login node, where the site allows it: berth schedule install --crontab"}
	}
	program, err := nodebin.Whole(e.Store.Bin()) // the nodes see it; whether they see this program is not known
	if err != nil {
		return err
	}
	_, err = slurm.New(run.Local{}, slurm.Config{Shared: socket.Dir}).SetCrontab(ctx, slurm.Crontab{
		Entry: ticks(home), Job: "berth-tick", Argv: []string{program, "schedule", "tick"}, Env: environment(home), Every: every, Options: o.options})
	if err == nil {
		note.By = byScrontab
		a.say("Slurm looks at what is due every %s, by scrontab; berth schedule install --uninstall ends that", note.Every)
		return nil
	}
	if jobs.KindOf(err) != jobs.KindConfig {
		return err
	}
	begin, err := e.StartTicks(ctx, engine.TickJobs{Program: program, Every: every, Slurm: o.options, Profile: p, Env: environment(home)[1:]})
	if err != nil {
		return err
	}
	note.By = byJobs
	a.say("a small job looks at what is due, and submits the next one; the first begins %s; berth schedule install --uninstall ends that",
		begin.Local().Format("2006-01-02 15:04"))
	return nil
}

func (a *app) installCrontab(ctx context.Context, home string, every time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	when, err := crontab.Interval(every)
	if err != nil {
		return err
	}
	entry := ticks(home)
	text, err := entry.Text(when + " " +
		shellescape.QuoteCommand(slices.Concat([]string{"env"}, environment(home, "PATH"), []string{self, "schedule", "tick"})))
	if err != nil {
		return err
	}
	changed, err := crontab.Put(ctx, cronTab{}, entry, text)
	switch host, _ := os.Hostname(); {
	case err != nil:
		return err
	case changed:
		a.say("cron of %s looks at what is due every %s; berth schedule install --uninstall, on this host, ends that", host, shortDuration(every))
	default:
		a.say("it is there already")
	}
	return nil
}

// uninstall removes what any berth schedule install has made.
func (a *app) uninstall(ctx context.Context, e *engine.Engine) error {
	home := e.Store.Home()
	was := installed(home)
	found, err := e.StopTicks(ctx)
	if err != nil {
		return err
	}
	if was != nil && was.By == byScrontab {
		gone, err := slurm.New(run.Local{}, slurm.Config{Shared: socket.Dir}).DropCrontab(ctx, ticks(home))
		switch {
		case jobs.KindOf(err) == jobs.KindConfig: // the site has it no more, or a person has changed the entry
			a.say("warning: %v", err)
		case err != nil:
			return err
		}
		found = found || gone
	}
	if was != nil && was.By == byCrontab {
		if host, _ := os.Hostname(); host != was.Host {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: "cron of the host " + was.Host + " looks at what is due, and this is " + host,
				Hint: "there: berth schedule install --uninstall"}
		}
		gone, err := crontab.Put(ctx, cronTab{}, ticks(home), "")
		if err != nil {
			return err
		}
		found = found || gone
	}
	if !found {
		a.say("nothing was installed")
	} else {
		a.say("removed: nothing looks at what is due any more")
	}
	return setInstalled(home, nil)
}

// cronTab is the user's crontab of this machine.
type cronTab struct{}

func (cronTab) Read(ctx context.Context) (string, error) {
	out, err := run.Output(ctx, run.Local{}, jobs.Cmd{Argv: []string{"crontab", "-l"}})
	var ended *run.Error
	if errors.As(err, &ended) && strings.Contains(ended.Stderr, "no crontab for") {
		return "", nil
	}
	return string(out), cronError(err)
}

func (cronTab) Write(ctx context.Context, file string) error {
	argv := []string{"crontab", file}
	if file == "" {
		argv[1] = "-r"
	}
	_, err := run.Output(ctx, run.Local{}, jobs.Cmd{Argv: argv})
	return cronError(err)
}

// cronError says why cron does not do it: it is not there, or the user may not.
func cronError(err error) error {
	if err == nil {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "cron of this machine does not take an entry", Err: err,
		Hint: "another login node may; berth schedule tick, by whatever else runs regularly, does the same"}
}
