package session

import (
	"reflect"
	"testing"

	"berth/jobs"
)

// All that a guest has found is passed on, with bounds.
func TestClampSeen(t *testing.T) {
	in := jobs.Seen{Sockets: []jobs.Socket{{Path: "/x"}}}
	v := reflect.ValueOf(&in).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Interface().(type) {
		case string:
			f.SetString("x")
		case bool:
			f.SetBool(true)
		case []string:
			f.Set(reflect.ValueOf([]string{"x"}))
		}
	}
	if got := clampSeen(&in); !reflect.DeepEqual(*got, in) {
		t.Errorf("got %+v, want %+v", *got, in)
	}
}
