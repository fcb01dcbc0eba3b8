package task

import (
	"testing"

	"berth/internal/config/strict"
)

// A template and an image take each other's place.
func TestTemplate(t *testing.T) {
	file := parse(t, "/t/fix.md", "+++\nname = \"x\"\nagent.command = \"true\"\n[terminal]\ntemplate = \"default\"\n+++\n")
	if file.Terminal.Template != "default" || file.Terminal.Image != "" {
		t.Errorf("%+v", file.Terminal)
	}
	flag := func(key, value string) []strict.Flag {
		return []strict.Flag{{Name: key, Table: "terminal", Key: key, Kind: strict.String, Values: []string{value}}}
	}
	if err := Override(&file, flag("image", "/x.sif")); err != nil || file.Terminal.Template != "" || file.Terminal.Image != "/x.sif" {
		t.Errorf("%+v, %v", file.Terminal, err)
	}
	if err := Override(&file, flag("template", "mine")); err != nil || file.Terminal.Template != "mine" || file.Terminal.Image != "" || file.Terminal.Reference != "" {
		t.Errorf("%+v, %v", file.Terminal, err)
	}
}
