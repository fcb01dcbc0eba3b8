//go:build cluster

package cluster

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// TestNotice: when the last job of a label has ended, its node runs the command of
// [notify], once, and who looks later does not run it again.
func TestNotice(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	env := "export BERTH_HOME=" + d + "/state XDG_CONFIG_HOME=" + d + "/config; "
	s.ok(t, "mkdir -p "+d+"/config/berth; printf '[notify]\\ncommand = [\""+d+"/tell\", \"aloud\"]\\n' >"+d+"/config/berth/config.toml; "+
		"printf '#!/bin/sh\\necho \"$(hostname) $1 $(cat)\" >>"+d+"/told\\n' >"+d+"/tell; chmod 755 "+d+"/tell")
	submit := func(node, command string) string {
		return s.ok(t, env+"berth submit --label sweep --retry on --image "+s.image+" --memory 300MiB --slurm --nodelist="+node+" --bind "+d+":/d -- "+quote(command))
	}
	first := submit("c1", "exit 3")
	last := submit("c2", "until [ -e /d/go ]; do sleep 0.1; done")
	s.want(t, env+"berth wait "+first, 1)
	if told := s.sh(t, "cat "+d+"/told"); told.code == 0 {
		t.Errorf("told while a job of the label runs: %s", told.out)
	}
	s.ok(t, "touch "+d+"/go")
	// No client looks: it is the node that tells.
	waitFor(t, patience, func() bool { return strings.HasSuffix(s.sh(t, "cat "+d+"/told").out, "\n") })
	s.want(t, env+"berth wait "+first+" "+last, 1)
	s.ok(t, env+"berth ps; berth status "+last)
	told := s.ok(t, "cat "+d+"/told")
	from, object, _ := strings.Cut(told, " aloud ")
	var notice struct {
		Label, Subject string
		Jobs           []struct {
			ID, State string
			ExitCode  int `json:"exit_code"`
		}
	}
	if err := json.Unmarshal([]byte(object), &notice); err != nil || from != "c2" || notice.Label != "sweep" || len(notice.Jobs) != 2 ||
		notice.Subject != "berth: 2 jobs of label sweep ended: 1 completed, 1 failed" {
		t.Errorf("%v\n%s", err, told)
	}
	if !regexp.MustCompile(`"exit_code": ?1\b`).MatchString(object) {
		t.Errorf("%s", object)
	}
}
