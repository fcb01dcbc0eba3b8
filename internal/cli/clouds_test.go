package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/test/fakes/daytonatest"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestDaytona plays the command line against a stand-in for the service, with
// the backend that is in berth itself.
func TestDaytona(t *testing.T) {
	srv := daytonatest.New(t.TempDir(), daytonatest.Options{})
	t.Cleanup(srv.Close)
	t.Cleanup(func() { // when the script has been played
		for _, b := range srv.Boxes() {
			t.Errorf("the sandbox %s, %s, was left", b.ID, b.Name)
		}
	})
	testscript.Run(t, testscript.Params{
		Files: []string{filepath.Join("testdata", "clouds", "daytona.txtar")}, UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("DAYTONA_API_URL", srv.URL)
			env.Setenv("DAYTONA_API_KEY", daytonatest.Key)
			return setup(env)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": codeCmd, "plain": plainCmd, "transcript": transcriptCmd,
			"lose": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(os.RemoveAll(ts.MkAbs(args[0]))) },
			// What a restore that was killed leaves, of an environment that stands.
			"leftover": func(ts *testscript.TestScript, _ bool, args []string) {
				owner, id := ts.ReadFile(args[0]), ""
				for _, b := range srv.Boxes() {
					id = b.Labels["berth-env"]
				}
				srv.Make("berth-leftover-2", map[string]string{"berth": "1", "berth-owner": strings.TrimSpace(owner), "berth-env": id + "-restored"})
			},
			"snapshots": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(srv.Kept(), "\n")), 0o600))
			},
			"sandboxes": func(ts *testscript.TestScript, _ bool, args []string) {
				var text string
				for _, b := range srv.Boxes() {
					text += b.State + "\n"
				}
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
			},
		},
	})
}
