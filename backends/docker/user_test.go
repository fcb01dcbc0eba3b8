package docker

import (
	"os"
	"testing"

	"berth/jobs"
)

func TestHarmless(t *testing.T) {
	for user, ok := range map[string]bool{
		"33:33": true, "2147483647:1": true, "": false, "0": false, "0:0": false, "00:1": false, "+0:1": false, "-0:1": false, "root": false, "root:root": false, "www-data:www-data": false,
		"33": false, "33:": false, ":33": false, "33:0": false, "33:adm": false, "4294967296:1": false, "33:33:0": false, " 33:33": false, ownIDs(): os.Getuid() != 0,
	} {
		if err := harmless(user); (err == nil) != ok {
			t.Errorf("%q: %v", user, err)
		}
	}
}

func TestCheckRoot(t *testing.T) {
	for name, c := range map[string]struct {
		user    string
		mounts  []jobs.Mount
		can     can
		refused bool
	}{
		"read-only":               {"0:0", []jobs.Mount{{Source: "/a,b", Destination: "/x"}}, can{}, false},
		"writable":                {"0:0", []jobs.Mount{{Source: "/a,b", Destination: "/x", Writable: true}}, can{}, true},
		"nobody named":            {"", []jobs.Mount{{Source: "/a,b", Destination: "/x", Writable: true}}, can{}, true},
		"another":                 {"7:7", []jobs.Mount{{Source: "/a,b", Destination: "/x", Writable: true}}, can{}, false},
		"the clone":               {"0:0", []jobs.Mount{{Source: "/a", Destination: "/work", Writable: true}}, can{}, false},
		"rootless":                {"0:0", []jobs.Mount{{Source: "/a", Destination: "/x", Writable: true}}, can{rootless: true}, false},
		"mapped":                  {"0:0", []jobs.Mount{{Source: "/a", Destination: "/x", Writable: true}}, can{remapped: true}, false},
		"a path called so":        {"0:0", []jobs.Mount{{Source: "/a", Destination: "/x,readonly", Writable: true}}, can{}, true},
		"a source named as /work": {"0:0", []jobs.Mount{{Source: "/a,destination=/work", Destination: "/x", Writable: true}}, can{}, true},
	} {
		if err := checkRoot(c.user, c.mounts, c.can); (err != nil) != c.refused || err != nil && (jobs.KindOf(err) != jobs.KindConfig || jobs.HintOf(err) == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
