package goapi

import "testing"

func TestLocal(t *testing.T) { Run(t, Build(t, "../..", t.TempDir()), "--backend", "local") }
