package task

import (
	"testing"

	"berth/internal/config/strict"
)

// A template and an image take each other's place.
func TestTemplate(t *testing.T) {
	file := parse(t, "/t/fix.md", "+++\nname = \"x\"\nagent.command = \"true\"\n[terminal]\ntemplate = \"default\"\n+++\n")
	if file.Template != "default" || file.Image != "" {
		t.Errorf("%+v", file.Place)
	}
	flag := func(key, value string) []strict.Flag {
		return []strict.Flag{{Name: key, Table: "terminal", Key: key, Kind: strict.String, Values: []string{value}}}
	}
	if err := Override(&file, flag("image", "/x.sif")); err != nil || file.Template != "" || file.Image != "/x.sif" {
		t.Errorf("%+v, %v", file.Place, err)
	}
	if err := Override(&file, flag("template", "mine")); err != nil || file.Template != "mine" || file.Image != "" || file.Reference != "" {
		t.Errorf("%+v, %v", file.Place, err)
	}
}
