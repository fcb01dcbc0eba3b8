//go:build clouds

package cli_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"berth/test/fakes/modaltest"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc/codes"
)

// TestModal plays the command line against a stand-in for the service, with the
// program that scripts/build has put into dist.
func TestModal(t *testing.T) {
	dist, err := filepath.Abs("../../dist")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dist, "berth-backend-modal")); err != nil {
		t.Fatalf("%v: scripts/build", err)
	}
	srv, err := modaltest.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	t.Cleanup(func() { // when the script has been played
		for _, b := range srv.Running() {
			t.Errorf("the sandbox %s, %s, was left", b.ID, b.Name)
		}
	})
	testscript.Run(t, testscript.Params{
		Files: []string{filepath.Join("testdata", "clouds", "modal.txtar")}, UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			srv.Setenv(env.Setenv)
			env.Setenv("DIST", dist)
			return setup(env)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": codeCmd, "plain": plainCmd, "transcript": transcriptCmd,
			"lose": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(os.RemoveAll(ts.MkAbs(args[0]))) },
			// fault METHOD TIMES CODE TEXT: what the next calls of a method get.
			"fault": func(ts *testscript.TestScript, _ bool, args []string) {
				times, err := strconv.Atoi(args[1])
				ts.Check(err)
				var c codes.Code
				ts.Check(c.UnmarshalJSON([]byte(strconv.Quote(args[2]))))
				srv.Inject(modaltest.Fault{Method: args[0], Times: times, Err: modaltest.Code(c, args[3])})
			},
			"faultless": func(ts *testscript.TestScript, _ bool, _ []string) {
				for _, f := range srv.Pending() {
					ts.Fatalf("%s was not called", f.Method)
				}
			},
			// left FILE: what there is at the service, that which was asked for aside.
			"left": func(ts *testscript.TestScript, _ bool, args []string) {
				text := strings.Repeat("sandbox\n", len(srv.Running())) + strings.Repeat("image\n", max(0, len(srv.Images())-1))
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
			},
		},
	})
}
