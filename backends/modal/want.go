package modal

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/backends/external/protocol"

	sdk "github.com/modal-labs/modal-client/go"
)

// The options of [terminal.external.modal] that are known.
const (
	optApp      = "app"      // Modal's app that the sandboxes are in
	optGPU      = "gpu"      // type and number, "A100-80GB:2"
	optRegion   = "region"   // one or several with commas
	optSnapshot = "snapshot" // name that the files are published under, and found by elsewhere
	optHermes   = "hermes"   // path of Hermes Agent's modal_snapshots.json
)

func options() []string { return []string{optApp, optGPU, optRegion, optSnapshot, optHermes} }

const (
	maxLifetime = 24 * time.Hour // Modal's own bound
	defaultIdle = 5 * time.Minute
	defaultApp  = "berth"
	defaultGPU  = "T4" // the cheapest
	minEndsLeft = 10 * time.Minute
	defaultFrom = "debian:12"
)

// Tags of a sandbox beside the request's own.
const (
	tagSpec = "berth-spec" // what it was made from
	tagEnds = "berth-ends" // when Modal ends it, in seconds of Unix
)

// want is a sandbox in Modal's terms.
type want struct {
	app     string
	params  sdk.SandboxCreateParams
	image   string
	dropped []string
	notes   []string
}

// settle reads what is wanted, and refuses what Modal has not.
func settle(r *protocol.Request) (*want, error) {
	s := r.Spec
	if s == nil {
		return nil, protocol.Errorf(protocol.Internal, "the request has no spec")
	}
	w := &want{app: appOf(r), image: strings.TrimPrefix(s.Image, "docker://")}
	if w.image == "" {
		w.image = defaultFrom
	}
	if strings.ContainsAny(w.image, " \t\r\n") || strings.Contains(w.image, "://") ||
		strings.HasPrefix(w.image, ".") || strings.HasPrefix(w.image, "/") || strings.HasSuffix(w.image, ".sif") {
		return nil, &protocol.Error{Kind: protocol.Input,
			Message: fmt.Sprintf("image %q: Modal takes references of registries, such as debian:12, and its own image ids, im-...", s.Image),
			Hint:    "name one of a registry; files of this machine cannot be used there"}
	}
	if s.DiskMiB > 0 {
		if !slices.Contains(s.Soft, protocol.LimitDisk) {
			return nil, &protocol.Error{Kind: protocol.Unsupported, Message: "Modal's sandboxes have no limit of their disk that could be set",
				Hint: "leave the disk's size out; Modal gives each sandbox its own bound"}
		}
		w.dropped = append(w.dropped, protocol.LimitDisk)
	}
	w.params.Name = r.Name
	// What a sandbox asks for is also the most it may use: that is what it costs.
	if s.CPUs > 0 {
		w.params.CPU = float64(s.CPUs) / 2 // Modal counts cores, of two virtual CPUs each
		w.params.CPULimit = w.params.CPU
	}
	if s.MemoryMiB > 0 {
		w.params.MemoryMiB = int(s.MemoryMiB)
		w.params.MemoryLimitMiB = w.params.MemoryMiB
	}
	switch s.GPU {
	case "":
	case "nvidia":
		w.params.GPU = strings.ToUpper(r.Options[optGPU])
		if w.params.GPU == "" {
			w.params.GPU = defaultGPU
			w.notes = append(w.notes, "the GPU is a "+defaultGPU+"; [terminal.external.modal] gpu names another one")
		}
	default:
		return nil, protocol.Errorf(protocol.Unsupported, "Modal has no GPUs of %s", s.GPU)
	}
	for region := range strings.SplitSeq(r.Options[optRegion], ",") {
		if region = strings.TrimSpace(region); region != "" {
			w.params.Regions = append(w.params.Regions, region)
		}
	}
	if err := w.network(s.Network); err != nil {
		return nil, err
	}
	life := time.Duration(s.LifetimeSeconds) * time.Second
	if life <= 0 || life > maxLifetime {
		life = maxLifetime
	}
	w.params.Timeout = life
	w.params.IdleTimeout = defaultIdle
	if s.IdleSeconds > 0 {
		w.params.IdleTimeout = min(time.Duration(s.IdleSeconds)*time.Second, life)
	}
	if s.Persistent && w.params.GPU == "" {
		// Files then also outlive an unexpected end.
		w.params.ExperimentalOptions = map[string]any{"enable_exit_snapshot": true}
	}
	w.params.Tags = map[string]string{tagSpec: w.hash()}
	for k, v := range r.Tags {
		w.params.Tags[k] = v
	}
	return w, nil
}

// network reads what may be reached. An allow-list with nothing for names or for
// addresses blocks that way.
func (w *want) network(n protocol.Network) error {
	switch n.Mode {
	case "", protocol.NetworkOpen:
	case protocol.NetworkNone:
		w.params.BlockNetwork = true
	case protocol.NetworkAllow:
		names, ranges := &sdk.Allowlist{Entries: []string{}}, &sdk.Allowlist{Entries: []string{}}
		for _, a := range n.Allow {
			if p, err := netip.ParsePrefix(a); err == nil {
				ranges.Entries = append(ranges.Entries, p.String())
			} else if ip, err := netip.ParseAddr(a); err == nil {
				ranges.Entries = append(ranges.Entries, netip.PrefixFrom(ip, ip.BitLen()).String())
			} else {
				names.Entries = append(names.Entries, a)
			}
		}
		w.params.OutboundDomainAllowlist, w.params.OutboundCIDRAllowlist = names, ranges
		if len(names.Entries) > 0 {
			w.notes = append(w.notes, "Modal lets names through by the name in TLS, on port 443 only, and resolves all names")
		}
	default:
		return protocol.Errorf(protocol.Unsupported, "Modal has no network %q", n.Mode)
	}
	return nil
}

// hash names what cannot be changed of a sandbox that stands.
func (w *want) hash() string {
	p := w.params
	text := fmt.Sprintf("%q %v %v %v %v %q %q %v %v", w.image, p.CPU, p.CPULimit, p.MemoryMiB, p.MemoryLimitMiB,
		p.GPU, p.Regions, p.BlockNetwork, p.ExperimentalOptions)
	for _, l := range []*sdk.Allowlist{p.OutboundDomainAllowlist, p.OutboundCIDRAllowlist} {
		if l != nil {
			text += fmt.Sprintf(" %q", l.Entries)
		}
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

func appOf(r *protocol.Request) string {
	if a := r.Options[optApp]; a != "" {
		return a
	}
	return defaultApp
}

// A ref has the sandbox and its task, so that a stream begins with one question.
func joinRef(id, task string) string { return id + "/" + task }

func splitRef(ref string) (id, task string) {
	id, task, _ = strings.Cut(ref, "/")
	return id, task
}

// endsOf reads when Modal ends a sandbox; zero is not known.
func endsOf(tags map[string]string) time.Time {
	n, err := strconv.ParseInt(tags[tagEnds], 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.Unix(n, 0)
}

// hasAll tells whether the tags of a sandbox are those of a request, and more.
func hasAll(have, tags map[string]string) bool {
	for k, v := range tags {
		if have[k] != v {
			return false
		}
	}
	return len(tags) > 0
}
