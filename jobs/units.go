package jobs

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bytes is an amount of memory or disk, in bytes.
type Bytes int64

// Multiples of a byte.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

var byteUnits = []struct {
	suffix string
	unit   Bytes
}{{"B", 1}, {"KiB", KiB}, {"MiB", MiB}, {"GiB", GiB}, {"TiB", TiB}}

// sizeForm is a decimal number and a unit: what [strconv.ParseFloat] takes
// besides (hexadecimal, exponents, "inf") is more likely a slip than a size.
var sizeForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(-?[0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)$`)
})

// ParseBytes reads a size such as "512MiB" or "5GiB"; a bare number is MiB.
// Other units are refused with the nearest right spelling, because "4GB",
// "4G" and "4GiB" are three different amounts to different programs. It reads
// whatever [Bytes.String] writes of a size that is not zero.
func ParseBytes(s string) (Bytes, error) {
	m := sizeForm().FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return 0, fmt.Errorf("%q is not a size: write for example 512MiB or 5GiB", s)
	}
	number, suffix := m[1], m[2]
	unit := MiB
	if suffix != "" {
		unit = 0
		for _, u := range byteUnits {
			if suffix == u.suffix {
				unit = u.unit
			}
		}
		if unit == 0 {
			return 0, fmt.Errorf("%q has the unit %q: the units are KiB, MiB, GiB and TiB; did you mean %s%s?",
				s, suffix, number, nearestUnit(suffix))
		}
	}
	// Whole numbers are not taken through a float, which has 53 bits.
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		if n < 1 || n > math.MaxInt64/int64(unit) {
			return 0, fmt.Errorf("size %q is out of range", s)
		}
		return Bytes(n) * unit, nil
	}
	n, err := strconv.ParseFloat(number, 64)
	v := math.Ceil(n * float64(unit))
	if err != nil || n <= 0 || v >= math.MaxInt64 {
		return 0, fmt.Errorf("size %q is out of range", s)
	}
	return Bytes(v), nil
}

// nearestUnit is the right unit with the same first letter.
func nearestUnit(suffix string) string {
	for _, u := range byteUnits {
		if strings.EqualFold(suffix[:1], u.suffix[:1]) {
			return u.suffix
		}
	}
	return "MiB"
}

// MiB returns the size in whole MiB, rounded up: Slurm takes a memory of 0 for
// all the memory of the node, so a small size must never become 0.
func (b Bytes) MiB() int64 {
	n := int64(b / MiB)
	if b%MiB > 0 {
		n++
	}
	return n
}

// String writes the size with the largest unit that divides it.
func (b Bytes) String() string {
	for i := len(byteUnits) - 1; i > 0; i-- {
		u := byteUnits[i]
		if b != 0 && b%u.unit == 0 {
			return strconv.FormatInt(int64(b/u.unit), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// Rough writes the size for people, such as 1.1 GiB.
func (b Bytes) Rough() string {
	for i := len(byteUnits) - 1; i > 0; i-- {
		if u := byteUnits[i]; b >= u.unit && u.unit > 1 {
			return fmt.Sprintf("%.1f %s", float64(b)/float64(u.unit), u.suffix)
		}
	}
	return fmt.Sprintf("%d bytes", int64(b))
}

// ParseDuration reads a Go duration such as "90s", "2h" or "1h30m"; a bare
// number is seconds. Negative and zero durations are refused.
func ParseDuration(s string) (time.Duration, error) {
	t := strings.TrimSpace(s)
	if n, err := strconv.ParseInt(t, 10, 64); err == nil {
		if n <= 0 || n > int64(math.MaxInt64/time.Second) {
			return 0, fmt.Errorf("duration %q is out of range", s)
		}
		return time.Duration(n) * time.Second, nil
	}
	d, err := time.ParseDuration(t)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration: write for example 90s, 30m or 2h", s)
	}
	if d <= 0 {
		return 0, fmt.Errorf("duration %q is out of range", s)
	}
	return d, nil
}
