package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/engine"
	"berth/internal/agents/adapters"
	"berth/internal/config"
	"berth/jobs"
	"berth/templates"

	"github.com/spf13/cobra"
)

// checkTime is how long a check may take, once it runs.
const checkTime = 2 * time.Minute

// maxChecked bounds what is read of its output, in bytes: an image may say anything.
const maxChecked = 32 << 10

// checkScript looks for programs, and prints a line for each thing that it finds: what it
// is, its name, a value. The first word is the agent's program, with its version's
// arguments in $version; the others are what it needs.
const checkScript = `say() { printf '%s\t%s\t%s\n' "$1" "$2" "$3"; }
first() { head -c 1024 2>/dev/null | head -n 1; }
for p; do
	at=$(command -v -- "$p") && say program "$p" "$at" || say missing "$p" ''
done
if at=$(command -v -- "$1"); then
	line=$(first <"$at" | tr -d '\000')
	case $line in '#!'*)
		set -f; set -- "$1" ${line#'#!'}; i=$2
		case $i in */env|env) shift 2; [ "$1" = -S ] && shift; i=$1 ;; esac
		on=$(command -v -- "$i") && say runtime "${i##*/}" "$("$i" --version </dev/null 2>&1 | first)" || say missing "${i##*/}" '' ;;
	esac
	eval "$version" </dev/null >/tmp/.berth-check 2>&1
	say version "$?" "$(first </tmp/.berth-check)"
fi
for f in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
	[ -s "$f" ] && { say certificates "$f" ''; break; }
done
`

// agentCheck is what an image has of what an agent needs, in every --json output. Fields
// are only ever added.
type agentCheck struct {
	Agent        string            `json:"agent"`
	Image        string            `json:"image,omitempty"`
	Backend      string            `json:"backend"`
	Programs     map[string]string `json:"programs"` // and where they are
	Missing      []string          `json:"missing"`
	Runtime      string            `json:"runtime,omitempty"` // that its program is a script of, with its version
	Version      string            `json:"version,omitempty"`
	VersionCode  int               `json:"version_exit_code"`
	Tried        []string          `json:"tried,omitempty"` // the first and the last version that the adapter was tried with
	Certificates string            `json:"certificates,omitempty"`
}

func (a *app) agentCheckCmd() *cobra.Command {
	var f taskFlags
	c := &cobra.Command{
		Use: "check NAME", Short: "say what of an agent is missing in an image",
		Long: `Look for an agent's program in an image, with its runtime, its version, the other programs
that it needs, and certificates, in a job without a network. The flags are those of
berth run; the record of the job is removed. A backend without a container is refused.
` + exitHelp + `0 all is there, 2 an option is wrong, 3 no such agent or image, 5 it could not be looked
for, 78 something is missing, or there is no container.`,
		Example: `  berth agent check claude --image agents.sif
  berth agent check codex --template codex
  berth agent check mine --backend bwrap --json`,
		Args: oneAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			ad, err := adapters.Find(config.AgentsDir(), args[0])
			if err != nil {
				return err
			}
			if ad.Program == "" {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "agent " + ad.Name + " has no program of its own: a task names its command",
					Hint: "berth agent show " + ad.Name}
			}
			f.fixed = checkTask(ad)
			got, err := a.check(cmd, &f, ad)
			if err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(map[string]any{"check": got})
			} else {
				err = a.rows(got.shown())
			}
			return cmp.Or(err, got.trouble())
		},
	}
	f.add(c)
	a.jsonFlag(c)
	return c
}

// checkTask is the task that looks.
func checkTask(ad *adapters.Adapter) *jobs.Task {
	quote := func(words []string) string {
		out := make([]string, len(words))
		for i, w := range words {
			out[i] = templates.Quote(w)
		}
		return strings.Join(out, " ")
	}
	version := "false"
	if len(ad.VersionArgs) > 0 {
		version = quote(append([]string{ad.Program}, ad.VersionArgs...))
	}
	t := &jobs.Task{Name: "check-" + ad.Name, Command: jobs.Command{Shell: "set -- " + quote(append([]string{ad.Program}, ad.Needs...)) +
		"\nversion=" + templates.Quote(version) + "\n" + checkScript}}
	t.Network = jobs.Network{Mode: jobs.NetworkNone}
	t.Resources.Time = checkTime
	return t
}

// check has the job run, and reads what it has found.
func (a *app) check(cmd *cobra.Command, f *taskFlags, ad *adapters.Adapter) (*agentCheck, error) {
	e, rec, err := a.submit(cmd, f, nil)
	if err != nil {
		return nil, err
	}
	var out, errs bytes.Buffer
	v, err := e.Log(cmd.Context(), rec, engine.LogOptions{Follow: true, Stdout: &bounded{to: &out}, Stderr: &bounded{to: &errs}, See: func(engine.View) {}})
	if interrupted(cmd.Context(), err) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = e.Cancel(ctx, []engine.View{v}, "ctrl-C")
		return nil, exitCode(jobs.CodeInterrupted)
	}
	if err != nil {
		return nil, err
	}
	if code := jobs.CodeOfRecord(v.Record); code != jobs.CodeOK {
		said, _, _ := strings.Cut(strings.TrimSpace(errs.String()), "\n")
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "the image could not be looked into: " + cmp.Or(viewJSON(v).Reason, said),
			Hint: "berth logs --runtime " + jobs.Short(rec.Spec.ID)}
	}
	if err := e.Remove(cmd.Context(), v.Record, false); err != nil {
		a.say("warning: the record of job %s stays: %v", jobs.Short(rec.Spec.ID), err)
	}
	return readCheck(ad, &rec.Spec, out.String()), nil
}

// bounded keeps the beginning of what is written.
type bounded struct{ to *bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	b.to.Write(p[:min(len(p), max(maxChecked-b.to.Len(), 0))])
	return len(p), nil
}

// readCheck reads the lines of [checkScript]; others are none of it.
func readCheck(ad *adapters.Adapter, s *jobs.Spec, text string) *agentCheck {
	got := &agentCheck{Agent: ad.Name, Image: cmp.Or(s.ImageRef, s.Image), Backend: s.Backend,
		Programs: map[string]string{}, Missing: []string{}, Tried: ad.Versions}
	known := append([]string{ad.Program}, ad.Needs...)
	for line := range strings.SplitSeq(text, "\n") {
		what := strings.SplitN(line, "\t", 3)
		if len(what) != 3 {
			continue
		}
		name, value := jobs.Printable(what[1]), strings.TrimSpace(jobs.Printable(what[2]))
		switch what[0] {
		case "program":
			if slices.Contains(known, name) {
				got.Programs[name] = value
			}
		case "missing":
			if len(got.Missing) <= len(known) && !slices.Contains(got.Missing, name) {
				got.Missing = append(got.Missing, name)
			}
		case "runtime":
			got.Runtime = strings.TrimSpace(name + " " + value)
		case "version":
			got.Version, got.VersionCode = value, 0
			if name != "0" {
				_, _ = fmt.Sscan(name, &got.VersionCode)
			}
		case "certificates":
			got.Certificates = name
		}
	}
	if len(ad.VersionArgs) == 0 {
		got.Version, got.VersionCode = "", 0
	}
	return got
}

// shown is what it says to people.
func (g *agentCheck) shown() [][2]string {
	out := [][2]string{{"agent", g.Agent}, {"image", dash(g.Image) + " (" + g.Backend + ")"}}
	for _, name := range slices.Sorted(maps.Keys(g.Programs)) {
		out = append(out, [2]string{"program", name + " at " + g.Programs[name]})
	}
	if g.Runtime != "" {
		out = append(out, [2]string{"runtime", g.Runtime})
	}
	if g.Version != "" {
		text := g.Version
		if n := len(g.Tried); n > 0 && !strings.Contains(text, g.Tried[0]) && !strings.Contains(text, g.Tried[n-1]) {
			text += "; tried with " + strings.Join(slices.Compact(slices.Clone(g.Tried)), " to ")
		}
		out = append(out, [2]string{"version", text})
	}
	certificates := "none: names on [network] allow are not reached by TLS; the broker of a credential is"
	if g.Certificates != "" {
		certificates = g.Certificates
	}
	out = append(out, [2]string{"certificates", certificates})
	for _, name := range g.Missing {
		out = append(out, [2]string{"missing", name})
	}
	return out
}

// template names the template that is built in for the agent, else where there are some.
func (g *agentCheck) template() string {
	if _, err := templates.FindWorkspace(config.TemplatesDir(), g.Agent); err != nil {
		return "berth template ls"
	}
	return "berth agent check " + g.Agent + " --template " + g.Agent
}

// trouble is the error of what an agent cannot do without.
func (g *agentCheck) trouble() error {
	where := "in the image " + g.Image
	if g.Image == "" {
		where = "with the backend " + g.Backend
	}
	switch {
	case len(g.Missing) > 0:
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "agent " + g.Agent + " cannot work " + where + ": missing " + strings.Join(g.Missing, ", "),
			Hint: "a template for an image that has it: " + g.template()}
	case g.VersionCode != 0:
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg: fmt.Sprintf("agent %s does not begin %s: asked for its version it ended with %d: %s", g.Agent, where,
				g.VersionCode, g.Version),
			Hint: "is it built for this system, and its runtime new enough?"}
	}
	return nil
}
