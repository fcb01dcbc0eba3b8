package jobs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"berth/jobs"
)

// Records that were written before a place was one type, with every field set,
// are read whole: written again, they say the same.
func TestKeptRecords(t *testing.T) {
	for file, record := range map[string]any{"job.json": &jobs.Spec{}, "env.json": &jobs.EnvSpec{}} {
		data, err := os.ReadFile(filepath.Join("testdata", "kept", file))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, record); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		again, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		var kept, wrote map[string]any
		if err := json.Unmarshal(data, &kept); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, &wrote); err != nil {
			t.Fatal(err)
		}
		if len(kept) < 30 {
			t.Errorf("%s has %d keys, and is to have all", file, len(kept))
		}
		for key, value := range kept {
			if key == "network" { // a word then
				value = map[string]any{"mode": value}
			}
			if !reflect.DeepEqual(wrote[key], value) {
				t.Errorf("%s: %s is %v, want %v", file, key, wrote[key], value)
			}
		}
	}
}
