//go:build !cluster

package apptainer

import (
	"testing"

	"berth/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }
