//go:build clouds

package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/test/fakes/daytonatest"
	"berth/test/fakes/modaltest"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/rogpeppe/go-internal/testscript"
)

// service is a stand-in, as far as jobs are concerned.
type service struct {
	setenv func(func(name, value string))
	boxes  func() []string // the ids of the sandboxes that there are
	end    func(id string) // as the service itself would
	shut   func() bool     // all sandboxes are without a network
}

// TestJobs plays the command line with jobs and sweeps on each service, with the programs
// that scripts/build has put into dist.
func TestJobs(t *testing.T) {
	for _, script := range []string{"jobs.txtar", "sweep.txtar"} {
		t.Run(script, func(t *testing.T) { onServices(t, script) })
	}
}

// onServices plays a script with a stand-in for each service, which has nothing else.
func onServices(t *testing.T, script string) {
	dist, err := filepath.Abs("../../dist")
	if err != nil {
		t.Fatal(err)
	}
	modal, err := modaltest.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(modal.Close)
	daytona := daytonatest.New(t.TempDir(), daytonatest.Options{})
	t.Cleanup(daytona.Close)
	for name, s := range map[string]service{
		"modal": {setenv: modal.Setenv, boxes: func() (ids []string) {
			for _, b := range modal.Running() {
				ids = append(ids, b.ID)
			}
			return ids
		}, end: func(id string) { modal.End(id, pb.GenericResult_GENERIC_STATUS_TERMINATED) }, shut: func() bool {
			return !slices.ContainsFunc(modal.Running(), func(b *modaltest.Sandbox) bool {
				return b.Definition.GetNetworkAccess().GetNetworkAccessType() != pb.NetworkAccess_BLOCKED
			})
		}},
		"daytona": {setenv: func(set func(name, value string)) {
			set("DAYTONA_API_URL", daytona.URL)
			set("DAYTONA_API_KEY", daytonatest.Key)
		}, boxes: func() (ids []string) {
			for _, b := range daytona.Boxes() {
				ids = append(ids, b.ID)
			}
			return ids
		}, end: daytona.Remove, shut: func() bool {
			return !slices.ContainsFunc(daytona.Boxes(), func(b daytonatest.Box) bool { return !b.NoNetwork })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() { // when the script has been played
				for _, id := range s.boxes() {
					t.Errorf("the sandbox %s was left", id)
				}
			})
			testscript.Run(t, testscript.Params{
				Files: []string{filepath.Join("testdata", "clouds", script)}, UpdateScripts: *update,
				Setup: func(env *testscript.Env) error {
					s.setenv(env.Setenv)
					env.Setenv("BACKEND", name)
					env.Setenv("DIST", dist)
					return setup(env)
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"code": codeCmd, "id": idCmd, "await": awaitCmd, "plain": plainCmd, "transcript": transcriptCmd,
					// left FILE: the sandboxes that there are at the service.
					// left: a file with a line for each sandbox that does not end within a moment.
					"left": func(ts *testscript.TestScript, _ bool, args []string) {
						for until := time.Now().Add(10 * time.Second); len(s.boxes()) > 0 && time.Now().Before(until); {
							time.Sleep(50 * time.Millisecond)
						}
						ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Repeat("sandbox\n", len(s.boxes()))), 0o600))
					},
					// shut: the one sandbox that there is has no network.
					"shut": func(ts *testscript.TestScript, _ bool, _ []string) {
						if n := len(s.boxes()); n != 1 || !s.shut() {
							ts.Fatalf("%d sandboxes, all without a network: %v", n, s.shut())
						}
					},
					// end: the service ends the one sandbox that there is.
					"end": func(ts *testscript.TestScript, _ bool, _ []string) {
						ids := s.boxes()
						if len(ids) != 1 {
							ts.Fatalf("there are %d sandboxes, and not 1", len(ids))
						}
						s.end(ids[0])
					},
				},
			})
		})
	}
}
