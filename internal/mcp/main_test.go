package mcp_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/engine"
	"berth/internal/mcp"
	"berth/jobs"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestMain(m *testing.M) {
	engine.Main()
	os.Exit(m.Run())
}

// fixture is a server over a state directory of its own.
type fixture struct {
	testing.TB
	engine *engine.Engine
	dir    string // of task files
	server *mcp.Server
	sub    *mcp.Submitter
}

func newFixture(t testing.TB, change func(*mcp.Options)) *fixture {
	t.Helper()
	f := &fixture{TB: t, dir: t.TempDir()}
	home := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), engine.Options{Home: home})
	if err != nil {
		t.Fatal(err)
	}
	f.engine = e
	f.sub = &mcp.Submitter{Engine: e, Settle: func(t *jobs.Task) (engine.Choice, []string, error) {
		t.Scheduler = jobs.SchedulerLocal
		return engine.Choice{}, nil, nil
	}}
	o := mcp.Options{
		Version: "test", Engine: e, Submitter: f.sub, Dir: f.dir, Now: time.Now, Guide: "an example",
		Job: func(v engine.View) mcp.Job {
			return mcp.Job{ID: v.Spec.ID, Name: v.Spec.Name, State: string(v.State), Final: v.State.Final(), ExitCode: jobs.CodeOfRecord(v.Record), Labels: v.Spec.Labels,
				Submitted: v.Spec.Created, Record: map[string]any{"id": v.Spec.ID}}
		},
		Review: func(rv *engine.Review, files []engine.ReviewFile) any { return map[string]any{"files": files} },
		Environment: func(ctx context.Context) (*engine.Environment, error) {
			return e.Environment(ctx, jobs.EnvOptions{Name: "t", Place: jobs.Place{Backend: jobs.BackendLocal, Dir: f.dir}, Lifetime: time.Minute})
		},
	}
	if change != nil {
		change(&o)
	}
	f.server = mcp.New(o)
	t.Cleanup(func() {
		f.server.Close()
		if v, err := e.FindEnvironment("t"); err == nil {
			if err := v.Remove(context.WithoutCancel(t.Context()), true); err != nil {
				t.Error(err)
			}
		}
		// A runner writes its last lines after its job has ended.
		for n := 0; os.RemoveAll(home) != nil && n < 100; n++ {
			time.Sleep(50 * time.Millisecond)
		}
	})
	return f
}

func all(o *mcp.Options) { o.Run, o.Submit = true, true }

// client connects one in memory; o may be nil.
func (f *fixture) client(o *sdk.ClientOptions) *sdk.ClientSession {
	f.Helper()
	here, there := sdk.NewInMemoryTransports()
	if _, err := f.server.SDK().Connect(f.Context(), there, nil); err != nil {
		f.Fatal(err)
	}
	return f.connect(o, here)
}

func (f *fixture) connect(o *sdk.ClientOptions, t sdk.Transport) *sdk.ClientSession {
	f.Helper()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "a client\x1b[2J", Version: "1"}, o).Connect(f.Context(), t, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close() })
	return c
}

// call calls a tool and reads its structured answer into out.
func (f *fixture) call(c *sdk.ClientSession, name string, args map[string]any, out any) *sdk.CallToolResult {
	f.Helper()
	r, err := c.CallTool(f.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		f.Fatalf("%s: %v", name, err)
	}
	b, err := json.Marshal(r.StructuredContent)
	if err != nil {
		f.Fatal(err)
	}
	if out != nil {
		if r.IsError {
			f.Fatalf("%s %v: %s", name, args, b)
		}
		if err := json.Unmarshal(b, out); err != nil {
			f.Fatal(err)
		}
	}
	return r
}

// fails calls a tool that has to fail so.
func (f *fixture) fails(c *sdk.ClientSession, name string, args map[string]any, code int, words string) {
	f.Helper()
	r := f.call(c, name, args, nil)
	var got struct {
		Error mcp.Failure `json:"error"`
	}
	b, _ := json.Marshal(r.StructuredContent)
	if err := json.Unmarshal(b, &got); err != nil {
		f.Fatal(err)
	}
	if !r.IsError || got.Error.ExitCode != code || !strings.Contains(got.Error.Message+" "+got.Error.Hint, words) {
		f.Errorf("%s %v: %s, want code %d and %q", name, args, b, code, words)
	}
}

func (f *fixture) tools(c *sdk.ClientSession) map[string]*sdk.Tool {
	f.Helper()
	out := map[string]*sdk.Tool{}
	for t, err := range c.Tools(f.Context(), nil) {
		if err != nil {
			f.Fatal(err)
		}
		out[t.Name] = t
	}
	return out
}
