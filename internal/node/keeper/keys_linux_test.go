package keeper

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"berth/internal/link/wire"
	"berth/internal/network/credentials"
	"berth/jobs"
)

// TestKeysInAllocation: the batch process of an allocation is started without keys, and has
// those that a client hands over. One that a client has started reads them at once.
func TestKeysInAllocation(t *testing.T) {
	list := []jobs.Credential{credentials.Ready()["anthropic"], credentials.Ready()["openai"]}
	k := &keeper{dir: t.TempDir(), batch: true, log: slog.New(slog.DiscardHandler), spec: &jobs.EnvSpec{Place: jobs.Place{Backend: jobs.BackendBwrap,
		Network: jobs.Network{Mode: jobs.NetworkAllow}, Credentials: list}}}
	if err := k.takeCredentials(strings.NewReader("what stands on the script's standard input")); err != nil || !k.keyless.Load() {
		t.Fatal(err)
	}
	if err := k.openNetwork(); err != nil {
		t.Fatal(err)
	}
	open := k.egress.Load()
	t.Cleanup(func() { open.Close() })
	one, two := credentials.Variable("anthropic")+"=sk-one-0123456789", credentials.Variable("openai")+"=sk-two-0123456789"
	for _, bad := range []string{"", one + "\x00", one + "\x00" + credentials.Variable("openai") + "=no key\x00", strings.Repeat("x", maxKeys+1)} {
		err := k.takeKeys(wire.Secret(bad))
		if err == nil || jobs.HintOf(err) == "" && len(bad) < maxKeys || strings.Contains(err.Error(), "sk-") || !k.keyless.Load() {
			t.Errorf("%.60q: %v", bad, err)
		}
	}
	for _, keys := range []string{one + "\x00" + two + "\x00", "not looked at any more"} {
		if err := k.takeKeys(wire.Secret(keys)); err != nil || k.keyless.Load() {
			t.Errorf("%v", err)
		}
	}
	secret := wire.Secret(one)
	if text := fmt.Sprintf("%v %+v %s %q %x", secret, wire.KeepRequest{Keys: secret}, secret, secret, secret); strings.Contains(text, "sk-") {
		t.Error(text)
	}
	k = &keeper{spec: k.spec}
	if err := k.takeCredentials(strings.NewReader(one + "\x00")); err == nil || !strings.Contains(err.Error(), "openai are not there") {
		t.Error(err)
	}
	if err := k.takeCredentials(strings.NewReader(one + "\x00" + two + "\x00")); err != nil || k.keyless.Load() {
		t.Error(err)
	}
}
