package jobs

import (
	"fmt"
	"regexp"
	"sync"
)

// maxLabels is how many labels a job may have.
const maxLabels = 16

// A label is a name of a directory of the ledger, too.
var labelForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._=-]{0,62}$`)
})

// CheckLabels refuses words that cannot mark a job.
func CheckLabels(labels []string) error {
	if len(labels) > maxLabels {
		return &Error{Kind: KindUsage, Msg: fmt.Sprintf("a job has at most %d labels", maxLabels)}
	}
	for _, l := range labels {
		if !labelForm().MatchString(l) {
			return &Error{Kind: KindUsage, Msg: fmt.Sprintf("%q cannot be a label", l),
				Hint: "a label has letters, digits and . _ = -, begins with one of the first two and has at most 63 characters"}
		}
	}
	return nil
}
