package suffix

import (
	"errors"
	"testing"

	"berth/internal/network/policy"
)

// Below a public suffix there is no wildcard; below a name there is.
func TestCheck(t *testing.T) {
	for word, want := range map[string]bool{
		"*.com": false, "*.co.uk": false, "*.github.io": false, "*.s3.amazonaws.com": false, "*.newtld": false, "*.CO.UK.": false,
		"*.pythonhosted.org": true, "*.example.co.uk": true, "*.me.github.io": true, "*.internal": true, "*.cluster.local": true,
		"com": true, "github.io": true, "10.0.0.7:80": true, "@pip": true,
	} {
		rules, err := policy.Parse(word)
		if err != nil {
			t.Fatal(err)
		}
		err = Check(rules)
		var e *policy.WordError
		if (err == nil) != want || err != nil && !errors.As(err, &e) {
			t.Errorf("%s: %v", word, err)
		}
	}
	for _, b := range policy.Bundles() {
		if rules, err := policy.Parse("@" + b.Name); err != nil || Check(rules) != nil {
			t.Errorf("%s: %v %v", b.Name, err, Check(rules))
		}
	}
}
