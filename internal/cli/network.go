package cli

import (
	"strings"

	"berth/internal/network/policy"

	"github.com/spf13/cobra"
)

func (a *app) networkCmd() *cobra.Command {
	return group("network", "show what the words of a network stand for",
		`The network of a task is what its table [network] says, or --network, --allow and --deny
(docs/network.md).`,
		`  berth network bundles`, a.networkBundlesCmd())
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
