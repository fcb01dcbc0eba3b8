//go:build !cluster

package apptainer

import (
	"testing"

	"berth/internal/sys/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }
