//go:build manual

package cli

import (
	"bytes"

	"github.com/spf13/cobra"
)

// Manual is the command berth with everything below it, for scripts/package.d/man: the
// program that is shipped makes no man pages.
func Manual() *cobra.Command {
	var none bytes.Buffer
	return newRoot(newApp(&none, &none, &none), nil)
}
