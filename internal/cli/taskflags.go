package cli

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"berth/engine"
	"berth/internal/config"
	"berth/internal/config/task"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// taskFlags are what submit, run and render take over a task file's words, and
// what makes a task of a command line.
type taskFlags struct {
	keys       []string // which of [keyFlags] the verb has; nil is all
	login      string
	sshKey     string
	sshOptions []string
	key        string     // of the caller's, under which a task is submitted once
	learn      bool       // every name is allowed, to learn which are needed
	fixed      *jobs.Task // berth's own, in place of a file or words
}

// offlineHelp is of a flag that the configuration reads.
const offlineHelp = "use only images that are in the cache; contact no registry ($BERTH_OFFLINE)"

func (f *taskFlags) add(c *cobra.Command) {
	addKeyFlags(c, keyFlags(), nil)
	f.addWhere(c)
	fs := c.Flags()
	fs.Bool("offline", false, offlineHelp)
	f.addLogin(c)
}

// addLogin adds those of a cluster that is reached by ssh.
func (f *taskFlags) addLogin(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.login, "login", "", "submit on a cluster over ssh: its login node, `[USER@]HOST[:PORT]`")
	fs.StringVar(&f.sshKey, "ssh-key", "", "private key `FILE` for backend ssh and --login ($TERMINAL_SSH_KEY)")
	fs.StringArrayVar(&f.sshOptions, "ssh-option", nil, "option of ssh_config, `Name=value`, for backend ssh and --login; repeatable")
}

const flagKey = "idempotency-key"

// addKey adds what makes a submission one that may be repeated.
func (f *taskFlags) addKey(c *cobra.Command) {
	c.Flags().StringVar(&f.key, flagKey, "", "submit only once under this `KEY`, which you choose: repeating the command gives the same job")
}

// addPlace adds those that say where, and how long, anything may run.
func (f *taskFlags) addPlace(c *cobra.Command) {
	f.keys = placeKeys
	addKeyFlags(c, keyFlags(), f.keys)
	f.addWhere(c)
}

// addWhere adds those that the configuration reads.
func (*taskFlags) addWhere(c *cobra.Command) {
	fs := c.Flags()
	fs.String("scheduler", "", "what starts the job, `NAME`: slurm or local (default auto: slurm where there is one)")
	fs.String("target", "", "use the target `NAME` of the configuration ($BERTH_TARGET)")
	fs.String("profile", "", "site profile: a `NAME` or the path of a file ($BERTH_PROFILE)")
}

// task reads the task: a file, or the words after "--". What neither it nor a
// flag says, the configuration does.
func (f *taskFlags) task(cmd *cobra.Command, args []string, cfg *config.Config) (t jobs.Task, c engine.Choice, notes []string, err error) {
	if t, err = f.read(cmd, args); err != nil {
		return t, c, nil, err
	}
	return f.settle(cmd, t, cfg)
}

// configure puts the configuration below a task, and the limits and variables of its template. A
// template that is named here wins over the configuration; one that the configuration names
// stands below it.
func configure(t *jobs.Task, cfg *config.Config) (notes []string, err error) {
	named := t.Template != ""
	if named {
		err = engine.TaskTemplate(config.TemplatesDir(), t)
	}
	if err == nil {
		notes, err = cfg.Task(t)
	}
	if err == nil && !named {
		err = engine.TaskTemplate(config.TemplatesDir(), t)
	}
	return notes, err
}

// settle puts the flags over a task, and the configuration below it.
func (f *taskFlags) settle(cmd *cobra.Command, t jobs.Task, cfg *config.Config) (_ jobs.Task, c engine.Choice, notes []string, err error) {
	if err = task.Override(&t, keysGiven(cmd, keyFlags(), f.keys)); err != nil {
		return t, c, nil, err
	}
	if t.Network.Learn = f.learn; f.learn && cmd.Flags().Changed("network") {
		return t, c, nil, usage("--learn allows every name: leave --network out")
	}
	if notes, err = configure(&t, cfg); err != nil {
		return t, c, nil, err
	}
	if t.SSH != nil {
		host, err := sshSpec(*t.SSH, f.sshKey, f.sshOptions)
		if t.SSH = &host; err != nil {
			return t, c, nil, err
		}
	}
	c.Offline, c.Auto = cfg.Offline(), cfg.Auto()
	c.MaxWaiting, c.WaitingBy = cfg.MaxWaiting()
	if c.Notify, err = cfg.Notify(); err != nil {
		return t, c, nil, err
	}
	return t, c, notes, f.loginHost(cmd, &t)
}

// place is a task of which the flags of [taskFlags.addPlace] and the
// configuration say where it runs, and what it may use.
func (f *taskFlags) place(cmd *cobra.Command, cfg *config.Config, name string) (t jobs.Task, c engine.Choice, notes []string, err error) {
	t = jobs.Task{Name: name, Place: jobs.Place{Backend: jobs.BackendBare}}
	c.Offline, c.Auto = cfg.Offline(), cfg.Auto()
	if err = task.Override(&t, keysGiven(cmd, keyFlags(), f.keys)); err == nil {
		notes, err = cfg.Task(&t)
	}
	return t, c, notes, err
}

// loginHost puts --login, and what the caller alone may say of it, over what the
// target has.
func (f *taskFlags) loginHost(cmd *cobra.Command, t *jobs.Task) error {
	if f.login != "" {
		if t.Can().NeedsHost {
			return usage("--login names a cluster's login node, and the backend ssh runs the task on a host itself: give one of them")
		}
		login, err := jobs.ParseHost(f.login)
		if err != nil {
			return err
		}
		t.Login = &login
		if !cmd.Flags().Changed("scheduler") {
			t.Scheduler = jobs.SchedulerSlurm // whatever the configuration says of here
		}
	}
	if t.Login == nil {
		return nil
	}
	login, err := sshSpec(*t.Login, f.sshKey, f.sshOptions)
	t.Login = &login
	return err
}

func (f *taskFlags) read(cmd *cobra.Command, args []string) (jobs.Task, error) {
	dash := cmd.ArgsLenAtDash()
	switch {
	case f.fixed != nil:
		return *f.fixed, nil
	case dash >= 0:
		if dash > 0 {
			return jobs.Task{}, usage("give either a task file or a command after --, not both")
		}
		if len(args) == 0 || (len(args) == 1 && strings.TrimSpace(args[0]) == "") {
			return jobs.Task{}, usage("there is no command after --")
		}
		return jobs.Task{Name: nameOf(args), Command: jobs.Words(args)}, nil
	case len(args) == 1:
		if err := jobs.CheckText("the task file's name", args[0]); err != nil {
			return jobs.Task{}, err
		}
		return task.Load(args[0])
	case len(args) > 1:
		return jobs.Task{}, &jobs.Error{Kind: jobs.KindUsage, Msg: "more than one task file",
			Hint: cmd.CommandPath() + " -- " + strings.Join(args, " ") + "   runs a command"}
	}
	return jobs.Task{}, &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs a task file or a command after --",
		Hint: cmd.CommandPath() + " --help"}
}

// nameOf names a command line after its program.
func nameOf(words []string) string {
	if name := filepath.Base(words[0]); len(words) > 1 && isProgram(name) {
		return name
	}
	return cmp.Or(nameOfText(words[0]), "command")
}

// Words of a shell that are no program's name: what a command follows, what its
// arguments follow, and what a command is rarely about.
var (
	shellLeads  = strings.Fields("if then else elif while until do time ! { exec command builtin eval")
	shellHeads  = strings.Fields("for case select function in fi done esac }")
	shellDetail = strings.Fields("cd set export umask ulimit trap unset shopt source . : local declare readonly alias module")
)

// nameOfText names a shell's text after the first program in it, else after the
// first of its commands; "" is that there is none. It need not be exact.
func nameOfText(text string) (detail string) {
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(";&|\n()`", r) }) {
		for _, w := range strings.Fields(part) {
			if strings.ContainsAny(w, "$[<>") { // a variable, a test, a redirection
				break
			}
			w = strings.Trim(w, `"'{}!`)
			if name, _, is := strings.Cut(w, "="); w == "" || is && isProgram(name) || slices.Contains(shellLeads, w) {
				continue
			}
			if w = filepath.Base(w); slices.Contains(shellHeads, w) || !isProgram(w) {
				break
			}
			if !slices.Contains(shellDetail, w) {
				return w
			}
			detail = cmp.Or(detail, w)
			break
		}
	}
	return detail
}

// isProgram tells whether a word may name a program that people know.
func isProgram(w string) bool {
	return w != "" && !strings.ContainsAny(w[:1], "-+.") && strings.Trim(w, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-") == "" &&
		strings.Trim(w, "0123456789_.+-") != ""
}
