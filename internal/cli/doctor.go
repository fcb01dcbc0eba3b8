package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"berth/backends/daytona"
	"berth/internal/config"
	"berth/internal/config/profile"
	"berth/internal/config/task"
	"berth/internal/doctor"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// doctorFlags say what is looked at, and as what.
type doctorFlags struct {
	onNode, force, site                 bool
	scheduler, backend, profile, target string
	host, sshKey, login, contact, write string
	sshOptions                          []string
	wait                                time.Duration
}

func (a *app) doctorCmd() *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use: "doctor",
		Long: `Check this machine, its scheduler and its backends, and say of each thing that berth
needs: ok, warn or fail, why, and what to do, which comes first. Nothing is changed; it
ends within 30 s.

Login and compute nodes differ: --on-node checks a compute node too, in a Slurm job of one
minute, and shows both where they differ. berth help --page doctor explains the lines.

With --site it shows instead what the site's administrators bound here, and tries each key
with a plan that breaks it (berth help admins).
` + exitHelp + `0 what is configured, or would be chosen, works (warnings do not count),
1 it does not, 2 usage, 3 the profile does not exist, 5 a node could not be
looked at, 75 the job did not start in time, 130 interrupted.`,
		Example: `  berth doctor
  berth doctor --on-node --write-profile lake
  berth doctor --target lake
  berth doctor --login ada@cluster.example.org`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.site {
				return a.doctorSite(cmd.Context())
			}
			return a.doctor(cmd, &f)
		},
	}
	fs := c.Flags()
	fs.BoolVar(&f.site, "site", false, "show the site file's keys, and prove each that can be")
	fs.BoolVar(&f.onNode, "on-node", false, "check a compute node too, in a Slurm job of one minute")
	fs.DurationVar(&f.wait, "wait", 10*time.Minute, "with --on-node: wait at most `TIME` in the queue, such as 30m")
	fs.StringVar(&f.write, "write-profile", "", "write the site profile `NAME` from what is found")
	fs.BoolVar(&f.force, "force", false, "overwrite a profile that exists")
	fs.StringVar(&f.scheduler, "scheduler", "", "check this scheduler, `NAME`: slurm or local (default auto)")
	fs.StringVar(&f.backend, "backend", "", "check this backend, `NAME`: singularity, "+
		"docker, bwrap, ssh, local, or a program berth-backend-NAME (default auto)")
	fs.StringVar(&f.target, "target", "", "check what the target `NAME` of the configuration uses ($BERTH_TARGET)")
	fs.StringVar(&f.profile, "profile", "", "site profile: a `NAME` or the path of a file ($BERTH_PROFILE)")
	fs.StringVar(&f.host, "host", "", "backend ssh: the host, `[USER@]HOST[:PORT]` ($TERMINAL_SSH_HOST, _USER, _PORT)")
	fs.StringVar(&f.sshKey, "ssh-key", "", "private key `FILE` for backend ssh and --login ($TERMINAL_SSH_KEY)")
	fs.StringArrayVar(&f.sshOptions, "ssh-option", nil, "option of ssh_config, `Name=value`, for backend ssh and --login; repeatable")
	fs.StringVar(&f.login, "login", "", "check the login node `[USER@]HOST[:PORT]` of a cluster, over ssh, instead of this machine")
	fs.StringVar(&f.contact, "contact", "", "check that `HOST:PORT` can be reached; "+
		"without it only the profile's proxy is contacted, and by a node example.org")
	a.jsonFlag(c)
	return c
}

// doctor looks, prints, and fails when something that is configured does.
func (a *app) doctor(cmd *cobra.Command, f *doctorFlags) error {
	ctx := cmd.Context()
	w, err := f.where(cmd, a)
	if err != nil {
		return err
	}
	if f.write != "" { // before anything takes time
		if err := profile.CheckName(f.write); err != nil {
			return err
		}
		if _, err := os.Lstat(filepath.Join(config.OwnProfileDir(), f.write+".toml")); err == nil && !f.force {
			return exists(f.write)
		}
	}
	var here *doctor.Place
	if w.Login != nil {
		here, err = a.lookFar(ctx, *w.Login, w)
	} else {
		here = doctor.Run(ctx, w)
	}
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	places := []*doctor.Place{here}
	var nodeErr error
	if f.onNode {
		var node *doctor.Place
		if node, nodeErr = a.lookOnNode(ctx, f, w, here); nodeErr == nil {
			places = append(places, node)
		} else if errors.Is(nodeErr, context.Canceled) {
			return nodeErr
		}
	}
	if err := a.printPlaces(places, nodeErr); err != nil {
		return err
	}
	if nodeErr != nil && jobs.KindOf(nodeErr) == jobs.KindUnknown {
		nodeErr = &jobs.Error{Kind: jobs.KindInfra, Msg: "look at a node", Err: nodeErr}
	}
	if nodeErr != nil {
		if f.write != "" { // it would say less than was asked for, and look the same
			a.say("no profile was written: the node could not be looked at; without --on-node one is written from this machine alone")
		}
		return nodeErr
	}
	if f.write != "" {
		if err := a.writeProfile(f, places); err != nil {
			return err
		}
	}
	for _, p := range places {
		if !p.OK() {
			return exitCode(jobs.CodeTaskFailed)
		}
	}
	return nil
}

// where settles what is looked at: flags over the configuration. What cannot be
// read of that is a finding; the rest is looked at all the same.
func (f *doctorFlags) where(cmd *cobra.Command, a *app) (doctor.Where, error) {
	w := doctor.Where{Version: doctor.Version, Where: "here", Contact: f.contact}
	for _, v := range [][2]string{{"--profile", f.profile}, {"--target", f.target}, {"--contact", f.contact}, {"--write-profile", f.write}} {
		if err := jobs.CheckText(v[0], v[1]); err != nil {
			return w, err
		}
	}
	var scheduler, backend string
	for _, v := range []struct {
		flag, word string
		to         *string
		words      []string
	}{
		{"--scheduler", f.scheduler, &scheduler, jobs.Schedulers()},
		{"--backend", f.backend, &backend, jobs.Backends()},
	} {
		if v.to == &backend && task.IsProgram(v.word) {
			backend = v.word
			continue
		}
		if err := oneOf(v.flag, v.word, v.words, v.to); err != nil {
			return w, err
		}
	}
	if err := f.configured(cmd, a, &w); err != nil {
		return w, err
	}
	if f.scheduler != "" {
		w.Scheduler = scheduler
	}
	if f.backend != "" {
		w.Backend = backend
	}
	return w, f.hosts(&w)
}

// configured puts the values of the configuration into w. A name in it that does
// not exist is an error, and not one of the findings: the rest of the configuration
// would describe another place than the user meant.
func (f *doctorFlags) configured(cmd *cobra.Command, a *app, w *doctor.Where) error {
	var t jobs.Task
	cfg, err := a.config(cmd)
	subject := "configuration"
	if err == nil {
		_, err = cfg.Task(&t)
		if _, perr := cfg.ReadProfile(); perr != nil {
			subject = "profile"
		}
	}
	if jobs.KindOf(err) == jobs.KindNotFound {
		return err
	}
	if err != nil {
		w.Broken = append(w.Broken, doctor.Broken(subject, err))
	}
	w.Scheduler, w.Backend, w.Profile, w.Login = t.Scheduler, t.Backend, t.Profile, t.Login
	if w.Backend == jobs.BackendAuto {
		w.Backend = ""
	}
	over := &w.Profile.Slurm
	for _, v := range [][2]*string{
		{&over.Partition, &t.Slurm.Partition},
		{&over.Account, &t.Slurm.Account},
		{&over.QOS, &t.Slurm.QOS},
		{&over.Constraint, &t.Slurm.Constraint},
	} {
		if *v[1] != "" {
			*v[0] = *v[1]
		}
	}
	w.Keys, w.Options, w.Builtin = a.keys(), a.options, map[string][]string{daytona.Name: daytona.Program()}
	if t.SSH != nil && t.SSH.Host != "" {
		w.SSH = t.SSH
	}
	return nil
}

// hosts puts the hosts of the flags over those of the configuration.
func (f *doctorFlags) hosts(w *doctor.Where) error {
	if f.host != "" {
		host, err := jobs.ParseHost(f.host)
		if err != nil {
			return err
		}
		w.SSH = &host
	}
	if w.SSH != nil {
		host, err := sshSpec(*w.SSH, f.sshKey, f.sshOptions)
		if err != nil {
			return err
		}
		w.SSH = &host
	}
	if f.login != "" {
		login, err := jobs.ParseHost(f.login)
		if err != nil {
			return err
		}
		if login, err = sshSpec(login, f.sshKey, f.sshOptions); err != nil {
			return err
		}
		w.Login = &login
	}
	return nil
}

func oneOf(flag, word string, words []string, to *string) error {
	if word == "" || word == jobs.BackendAuto {
		return nil
	}
	for _, ok := range words {
		if word == ok {
			*to = word
			return nil
		}
	}
	return usage("%s is %q: it can be auto%s", flag, word, orWords(words))
}

func orWords(words []string) string {
	s := ""
	for i, w := range words {
		if i == len(words)-1 {
			return s + " or " + w
		}
		s += ", " + w
	}
	return s
}

// printPlaces prints the findings: of two places, what is the same of both
// once. On a terminal what is to be done comes first; in a pipe the lines keep the
// order of the checks.
func (a *app) printPlaces(places []*doctor.Place, nodeErr error) error {
	if a.json {
		ok := nodeErr == nil
		for _, p := range places {
			ok = ok && p.OK()
		}
		return a.printJSON(map[string]any{"ok": ok, "places": places})
	}
	found := doctor.Beside(places)
	if a.tty {
		if err := a.doctorList(found); err != nil {
			return err
		}
	} else {
		var rows [][]string
		for _, l := range found {
			rows = append(rows, []string{l.Where, string(l.Status), l.ID, l.Subject, l.Why, l.Do})
		}
		if err := a.table(nil, rows); err != nil {
			return err
		}
	}
	for _, p := range places {
		n := map[doctor.Status]int{}
		broken := 0
		for _, f := range p.Findings {
			n[f.Status]++
			if f.Status == doctor.Fail && f.Configured {
				broken++
			}
		}
		line := fmt.Sprintf("%s: %d ok, %d warn, %d fail", p.Host, n[doctor.OK], n[doctor.Warn], n[doctor.Fail])
		switch {
		case broken > 0:
			line += "; " + jobs.Plural(broken, "failure") + " in what berth is to use"
		case n[doctor.Fail] > 0:
			line += ", of which berth uses none"
		}
		a.say("%s (%.1f s)", line, float64(p.TookMS)/1000)
	}
	return nil
}
