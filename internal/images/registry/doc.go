// Package registry asks registries of images (the OCI distribution protocol,
// https://github.com/opencontainers/distribution-spec) for digests. It fetches
// no layers: the container program does that. The client of
// google/go-containerregistry would do the same for 0.9 MB and 0.5 ms a start
// more, and asks programs that the user's docker configuration names for
// passwords; here only what was named on purpose is used.
package registry
