//go:build docker

package docker_test

import (
	"testing"

	"berth/test/goapi"
)

// TestGoAPI: a program that uses the Go API, built by go build, is all that a container needs.
func TestGoAPI(t *testing.T) {
	goapi.Run(t, goapi.Build(t, "../..", t.TempDir()), "--backend", "docker", "--image", image)
}
