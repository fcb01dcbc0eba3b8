package daytona

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"

	"berth/backends/external/protocol"
	"berth/backends/external/provider"
)

// Check asks whether the key is good, and for what; and what is left of the
// organization's bounds, where it is known which one that is.
func (Provider) Check(ctx context.Context, r *protocol.Request, say provider.Progress) (*protocol.Checked, error) {
	c, err := open(r, say)
	if err != nil {
		return nil, err
	}
	a := &protocol.Checked{
		Version: version(), Service: "Daytona at " + c.url, Region: c.target, Level: protocol.LevelFS, Options: optionNames(), Notes: c.notes,
		Capabilities: protocol.Capabilities{
			Limits:  []string{protocol.LimitCPUs, protocol.LimitMemory, protocol.LimitDisk},
			Network: []string{protocol.NetworkOpen, protocol.NetworkNone, protocol.NetworkAllow}, Image: true, Persistent: true,
		},
	}
	if c.here() {
		a.Level = protocol.LevelNone
		a.Notes = append(a.Notes, "this Daytona is on this machine: whether its sandboxes contain anything is not known")
	}
	var key struct {
		Name        string     `json:"name"`
		Permissions []string   `json:"permissions"`
		Expires     *time.Time `json:"expiresAt"`
	}
	err = c.do(ctx, call{op: "check the key", method: http.MethodGet, url: c.url + "/api-keys/current", into: &key})
	switch {
	case isStatus(err, http.StatusNotFound) && environ("DAYTONA_JWT_TOKEN") != "":
		a.Notes = append(a.Notes, "it is not a key but a token, whose rights are not known beforehand")
	case isStatus(err, http.StatusTooManyRequests):
		// Whoever opens something has the time to wait, and is told of a wrong key.
		a.Notes = append(a.Notes, "the key could not be checked, because Daytona has had too many requests")
	case err != nil:
		return nil, explain(err)
	default:
		if err := rights(key.Permissions); err != nil {
			return nil, err
		}
		if key.Expires != nil {
			a.Notes = append(a.Notes, fmt.Sprintf("the key %q is good until %s", key.Name, key.Expires.Format(time.DateOnly)))
		}
	}
	if c.org != "" {
		c.usage(ctx, a)
	}
	return a, nil
}

func rights(has []string) error {
	for _, need := range []string{"write:sandboxes", "delete:sandboxes"} {
		found := len(has) == 0 // not told
		for _, h := range has {
			found = found || h == need
		}
		if !found {
			return &protocol.Error{Kind: protocol.Auth, Message: "the key lacks the permission " + need,
				Hint: "make one with write:sandboxes and delete:sandboxes in Daytona's dashboard (Keys), then: export DAYTONA_API_KEY=dtn_..."}
		}
	}
	return nil
}

// usage adds what the organization uses. Not every key may know.
func (c *client) usage(ctx context.Context, a *protocol.Checked) {
	var u struct {
		Snapshots    float64 `json:"totalSnapshotQuota"`
		SnapshotsNow float64 `json:"currentSnapshotUsage"`
		Regions      []struct {
			Region  string  `json:"regionId"`
			Class   string  `json:"sandboxClass"`
			CPU     float64 `json:"totalCpuQuota"`
			CPUNow  float64 `json:"currentCpuUsage"`
			Mem     float64 `json:"totalMemoryQuota"`
			MemNow  float64 `json:"currentMemoryUsage"`
			Disk    float64 `json:"totalDiskQuota"`
			DiskNow float64 `json:"currentDiskUsage"`
		} `json:"regionUsage"`
	}
	err := c.do(ctx, call{op: "look at the quotas", method: http.MethodGet, url: c.url + "/organizations/" + url.PathEscape(c.org) + "/usage", into: &u})
	if err != nil {
		a.Notes = append(a.Notes, "the quotas are not known: "+err.Error())
		return
	}
	for _, r := range u.Regions {
		if c.target != "" && r.Region != c.target {
			continue
		}
		in := " in " + r.Region
		if r.Class != "" && r.Class != "container" {
			in += " (" + r.Class + ")"
		}
		a.Quotas = append(a.Quotas,
			protocol.Quantity{Name: "vCPU" + in, Used: r.CPUNow, Limit: r.CPU},
			protocol.Quantity{Name: "GiB of memory" + in, Used: r.MemNow, Limit: r.Mem},
			protocol.Quantity{Name: "GiB of disk" + in, Used: r.DiskNow, Limit: r.Disk})
	}
	if u.Snapshots > 0 {
		a.Quotas = append(a.Quotas, protocol.Quantity{Name: "snapshots", Used: u.SnapshotsNow, Limit: u.Snapshots})
	}
}

func version() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "unknown"
}
