package jobs_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

func TestParseBytes(t *testing.T) {
	for _, c := range []struct {
		in   string
		want jobs.Bytes
		err  string // part of it
	}{
		{in: "1", want: jobs.MiB},
		{in: "512", want: 512 * jobs.MiB},
		{in: "512MiB", want: 512 * jobs.MiB},
		{in: " 5 GiB ", want: 5 * jobs.GiB},
		{in: "1.5GiB", want: 1536 * jobs.MiB},
		{in: "0.5", want: 512 * jobs.KiB},
		{in: "0.1KiB", want: 103}, // rounded up
		{in: "1TiB", want: jobs.TiB},
		{in: "1000B", want: 1000},
		{in: "9007199254740993B", want: 9007199254740993}, // more than 53 bits
		{in: "8388607TiB", want: 8388607 * jobs.TiB},
		{in: "8388608TiB", err: "out of range"},
		{in: "9223372036854775808B", err: "out of range"},
		{in: "99999999999999999999999999", err: "out of range"},
		{in: "0", err: "out of range"},
		{in: "0.0", err: "out of range"},
		{in: "0GiB", err: "out of range"},
		{in: "-1", err: "out of range"},
		{in: "-0.5GiB", err: "out of range"},
		{in: "4GB", err: "did you mean 4GiB?"},
		{in: "4G", err: "did you mean 4GiB?"},
		{in: "4gib", err: "did you mean 4GiB?"},
		{in: "4k", err: "did you mean 4KiB?"},
		{in: "4m", err: "did you mean 4MiB?"},
		{in: "2tb", err: "did you mean 2TiB?"},
		{in: "4x", err: "did you mean 4MiB?"},
		{in: "", err: "is not a size"},
		{in: "MiB", err: "is not a size"},
		{in: "inf", err: "is not a size"},
		{in: "NaN", err: "is not a size"},
		{in: "1e3", err: "is not a size"},
		{in: "0x10", err: "is not a size"},
		{in: "0x1p4", err: "is not a size"},
		{in: "1_000", err: "is not a size"},
		{in: "1,5GiB", err: "is not a size"},
		{in: "5GiB GiB", err: "is not a size"},
		{in: "+5", err: "is not a size"},
		{in: "5\nGiB", err: "is not a size"},
	} {
		got, err := jobs.ParseBytes(c.in)
		switch {
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", c.in, got, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || got != 0):
			t.Errorf("ParseBytes(%q) = %d, %v; want an error with %q", c.in, got, err, c.err)
		}
	}
}

func TestMiB(t *testing.T) {
	for in, want := range map[jobs.Bytes]int64{0: 0, 1: 1, jobs.MiB - 1: 1, jobs.MiB: 1, jobs.MiB + 1: 2, jobs.GiB: 1024, math.MaxInt64: 1 << 43} {
		if got := in.MiB(); got != want {
			t.Errorf("%d bytes are %d MiB, want %d", in, got, want)
		}
	}
}

func TestBytesString(t *testing.T) {
	for in, want := range map[jobs.Bytes]string{0: "0B", 1: "1B", 1023: "1023B", jobs.KiB: "1KiB", 1536: "1536B", 1536 * jobs.MiB: "1536MiB", 2 * jobs.GiB: "2GiB", jobs.TiB: "1TiB", 1024 * jobs.TiB: "1024TiB"} {
		if got := in.String(); got != want {
			t.Errorf("%d bytes are written %s, want %s", in, got, want)
		}
	}
}

// FuzzBytes holds that every size reads back as written, and that none becomes
// the 0 MiB that mean "all the memory of the node" to Slurm.
func FuzzBytes(f *testing.F) {
	for _, n := range []int64{1, 1023, 1 << 20, 1<<20 + 1, 1 << 62, math.MaxInt64} {
		f.Add(n, "5GiB")
	}
	f.Add(int64(7), "0.00000001")
	f.Fuzz(func(t *testing.T, n int64, s string) {
		if n > 0 {
			b := jobs.Bytes(n)
			if got, err := jobs.ParseBytes(b.String()); err != nil || got != b {
				t.Errorf("%d is written %s and read %d, %v", n, b, got, err)
			}
			if m := b.MiB(); m < 1 || jobs.Bytes(m-1) > b/jobs.MiB {
				t.Errorf("%d bytes are %d MiB", n, m)
			}
		}
		if got, err := jobs.ParseBytes(s); err == nil && (got < 1 || got.MiB() < 1) {
			t.Errorf("%q is read as %d", s, got)
		}
	})
}

func TestParseDuration(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration
		err  string
	}{
		{in: "90", want: 90 * time.Second},
		{in: "90s", want: 90 * time.Second},
		{in: " 2h ", want: 2 * time.Hour},
		{in: "1h30m", want: 90 * time.Minute},
		{in: "1.5h", want: 90 * time.Minute},
		{in: "9223372036", want: 9223372036 * time.Second},
		{in: "9223372037", err: "out of range"},
		{in: "0", err: "out of range"},
		{in: "0s", err: "out of range"},
		{in: "-5", err: "out of range"},
		{in: "-1h", err: "out of range"},
		{in: "", err: "is not a duration"},
		{in: "1.5", err: "is not a duration"},
		{in: "1d", err: "is not a duration"},
		{in: "01:30:00", err: "is not a duration"},
		{in: "two hours", err: "is not a duration"},
		{in: "9999999999h", err: "is not a duration"},
	} {
		got, err := jobs.ParseDuration(c.in)
		switch {
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", c.in, got, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("ParseDuration(%q) = %v, %v; want an error with %q", c.in, got, err, c.err)
		}
	}
}

func FuzzDuration(f *testing.F) {
	f.Add(int64(1), "1h")
	f.Add(int64(math.MaxInt64), "90")
	f.Fuzz(func(t *testing.T, n int64, s string) {
		if d := time.Duration(n); d > 0 {
			if got, err := jobs.ParseDuration(d.String()); err != nil || got != d {
				t.Errorf("%v is read %v, %v", d, got, err)
			}
		}
		if got, err := jobs.ParseDuration(s); err == nil && got <= 0 {
			t.Errorf("%q is read %v", s, got)
		}
	})
}
