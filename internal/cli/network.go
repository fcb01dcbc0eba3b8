package cli

import (
	"strings"

	"berth/internal/network/policy"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) networkCmd() *cobra.Command {
	return group("network",
		`The network of a task is what its table [network] says, or --network, --allow and --deny
(berth help --page network).`,
		`  berth network show 0a1b2c3d
  berth network allow 0a1b2c3d b.example
  berth network bundles`, a.networkShowCmd(), a.networkAllowCmd(), a.networkBundlesCmd(), a.networkRelayCmd())
}

// networkRows are what a network is made of, as label and value; of an open one there is
// nothing to say.
func networkRows(n jobs.Network) (out [][2]string) {
	add := func(label string, words ...string) {
		if text := strings.Join(words, " "); text != "" {
			out = append(out, [2]string{label, text})
		}
	}
	mode := n.Mode
	if by := n.NarrowedBy(); by != "" {
		mode += " (" + by + "; " + n.Asked + " was asked for)"
	}
	if n.Learn {
		mode += " (every name, to learn which are needed)"
	}
	add("network", append([]string{mode}, n.Allow...)...)
	add("refused", n.Deny...)
	add("not looked at", n.Opaque...)
	add("transparent", n.Transparent)
	for _, b := range []struct {
		label string
		most  jobs.Bytes
	}{{"most to a name", n.MaxUp}, {"most from a name", n.MaxDown}} {
		if b.most > 0 {
			add(b.label, b.most.String())
		}
	}
	if n.MaxTime > 0 {
		add("longest connection", n.MaxTime.String())
	}
	add("by way of", n.Via)
	for _, name := range jobs.NetworkPhaseNames {
		if p := n.Phases.Of(name); !p.Silent() {
			add("network of "+name, networkWords(p.Mode, p.Allow, p.Deny, p.Opaque))
		}
	}
	for _, b := range n.Bounds {
		add("within", b.Origin+":", networkWords(b.Mode, b.Allow, b.Deny, b.Opaque))
	}
	return out
}

func networkWords(mode string, allow, deny, opaque []string) string {
	out := append([]string{}, allow...)
	if mode != "" {
		out = append([]string{mode}, allow...)
	}
	if len(deny) > 0 {
		out = append(append(out, "but not"), deny...)
	}
	if len(opaque) > 0 {
		out = append(append(out, "not looked at"), opaque...)
	}
	return strings.Join(out, " ")
}

// bundleJSON is a bundle in --json output. Fields are only ever added.
type bundleJSON struct {
	Name     string   `json:"name"`
	Words    []string `json:"words"`
	Date     string   `json:"date"`
	Verified string   `json:"verified,omitempty"` // when its redirects were followed; left out where they never were
	Note     string   `json:"note,omitempty"`
}

func (a *app) networkBundlesCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "bundles", Short: "list the bundles: words such as @pip, each for several names",
		Long: `List the bundles, words of "allow" and "deny" that each stand for several names. They are
data of this version of berth, with the date on which it was looked at. A bundle whose
redirects were not followed then says "not verified since".
Columns: word, date, whether it was verified, names, what else can be reached with it.
` + exitHelp + `0 ok.`,
		Example: `  berth network bundles
  berth run --network allow --allow @pip -- pip install --user numpy`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			list := policy.Bundles()
			out := make([]bundleJSON, len(list))
			rows := make([][]string, len(list))
			for i, b := range list {
				out[i] = bundleJSON{Name: "@" + b.Name, Words: b.Words, Date: b.Date, Verified: b.Verified, Note: b.Note}
				state := "verified " + b.Verified
				if b.Verified == "" {
					state = "not verified since"
				}
				rows[i] = []string{"@" + b.Name, b.Date, state, strings.Join(b.Words, " "), dash(b.Note)}
			}
			if a.json {
				return a.printJSON(map[string]any{"bundles": out})
			}
			return a.table([]string{"BUNDLE", "DATE", "STATE", "NAMES", "NOTE"}, rows)
		},
	}
	a.jsonFlag(c)
	return c
}
