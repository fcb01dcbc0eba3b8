package modal

import (
	"context"
	"fmt"
	"time"

	"berth/backends/external/protocol"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// expiresSoon is how long before its end a token is worth a word.
const expiresSoon = 3 * 24 * time.Hour

// account adds to a check whose account it is and what it may use still. Where the
// token lacks the right to ask, which is not needed to work, the app is looked for,
// and its sandboxes are counted.
func (c *conn) account(ctx context.Context, r *protocol.Request, a *protocol.Checked) error {
	raw, err := c.raw(ctx)
	if err != nil {
		return trouble("reach Modal", err)
	}
	c.mu.Lock()
	name := c.environment
	c.mu.Unlock()
	list, err := raw.EnvironmentList(ctx, &emptypb.Empty{})
	switch status.Code(err) {
	case codes.OK:
	case codes.PermissionDenied, codes.Unimplemented, codes.NotFound:
		if name != "" {
			a.Service += ", environment " + name
		}
		return c.count(ctx, r, a)
	default:
		return trouble("reach Modal", err)
	}
	if t, err := raw.TokenInfoGet(ctx, &pb.TokenInfoGetRequest{}); err == nil {
		if w := t.GetWorkspaceName(); w != "" {
			a.Service += ", workspace " + w
		}
		if end := t.GetExpiresAt(); end.IsValid() && time.Until(end.AsTime()) < expiresSoon {
			a.Notes = append(a.Notes, "the token expires at "+end.AsTime().UTC().Format(time.RFC3339))
		}
	}
	for _, e := range list.GetItems() {
		if e.GetName() == name || name == "" && e.GetDefault() {
			limits(a, e)
			return nil
		}
	}
	if name != "" {
		return &protocol.Error{Kind: protocol.NotFound, Message: "Modal has no environment " + name + " that this token may see",
			Hint: "MODAL_ENVIRONMENT names it, or ~/.modal.toml; modal environment list shows those there are"}
	}
	return nil
}

// count counts the sandboxes of the app, if it is there.
func (c *conn) count(ctx context.Context, r *protocol.Request, a *protocol.Checked) error {
	app, err := c.app(ctx, r, false)
	if err != nil {
		return err
	}
	running := 0
	if app != nil {
		err = c.each(ctx, app, nil, func(*pb.SandboxInfo) { running++ })
	}
	a.Quotas = append(a.Quotas, protocol.Quantity{Name: "sandboxes in the app " + appOf(r), Used: float64(running)})
	return err
}

// limits adds what an environment of Modal's, which is a part of an account, uses
// and may use.
func limits(a *protocol.Checked, e *pb.EnvironmentListItem) {
	a.Service += ", environment " + e.GetName()
	for _, q := range []protocol.Quantity{
		{Name: "containers", Used: float64(e.GetCurrentConcurrentTasks()), Limit: float64(e.GetMaxConcurrentTasks())},
		{Name: "GPUs", Used: float64(e.GetCurrentConcurrentGpus()), Limit: float64(e.GetMaxConcurrentGpus())},
		{Name: "dollars of this month's budget", Used: e.GetCurrentCycleUsage(), Limit: spendLimit(e)},
	} {
		if q.Used > 0 || q.Limit > 0 {
			a.Quotas = append(a.Quotas, q)
		}
	}
	if e.GetSpendLimitReached() {
		a.Notes = append(a.Notes, fmt.Sprintf("the budget of the environment %s is used up: Modal makes no sandboxes there", e.GetName()))
	}
}

func spendLimit(e *pb.EnvironmentListItem) float64 {
	if l := e.GetEffectiveCycleSpendLimit(); l > 0 {
		return l
	}
	return e.GetCycleBudgetDollars()
}
