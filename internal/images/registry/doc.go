// Package registry asks registries of images (the OCI distribution protocol,
// https://github.com/opencontainers/distribution-spec) for digests. It fetches
// no layers: the container program does that. google/go-containerregistry speaks
// the protocol, and hashicorp/go-retryablehttp asks again. What is here is what
// those leave open: whose logins are used and where they may go, what is read at
// most, and what a person is told.
package registry
