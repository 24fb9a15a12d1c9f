package cmdutil

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Duration is a flag value that accepts Go durations ("90s", "1h30m") and
// plain seconds ("90"). It must be positive.
type Duration time.Duration

func (d *Duration) Type() string { return "duration" }

func (d *Duration) String() string {
	if *d == 0 {
		return "" // no default to show
	}
	return time.Duration(*d).String()
}

func (d *Duration) Set(value string) error {
	parsed, err := parseDuration(value)
	*d = Duration(parsed)
	return err
}

var errDuration = errors.New("want a positive duration such as 90s, 10m, 1h30m, or seconds")

func parseDuration(value string) (time.Duration, error) {
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		if seconds <= 0 || seconds > math.MaxInt64/int64(time.Second) {
			return 0, errDuration
		}
		return time.Duration(seconds) * time.Second, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return 0, errDuration
	}
	return d, nil
}

// Size is a flag value that accepts a number of bytes, or a number with a unit from KiB to TiB
// ("20GiB"). It also accepts the units of Docker ("512m", "2g"). The size must be positive.
type Size int64

// sizeUnits are ordered from the largest to the smallest.
var sizeUnits = []struct {
	name string
	size int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

func (s *Size) Type() string { return "size" }

func (s *Size) String() string {
	for _, unit := range sizeUnits {
		if *s != 0 && int64(*s)%unit.size == 0 {
			return strconv.FormatInt(int64(*s)/unit.size, 10) + unit.name
		}
	}
	return ""
}

func (s *Size) Set(value string) error {
	for _, unit := range sizeUnits {
		number, ok := strings.CutSuffix(value, unit.name)
		if letter := strings.TrimSuffix(unit.name, "iB"); !ok && letter != "" {
			number, ok = strings.CutSuffix(strings.ToUpper(value), letter)
		}
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n <= 0 || n > math.MaxInt64/unit.size {
			break
		}
		*s = Size(n * unit.size)
		return nil
	}
	return errors.New("want a positive number of bytes, or of KiB, MiB, GiB or TiB, such as 20GiB, 512MiB or 512m")
}

// Count is a flag value that accepts a positive number.
type Count int64

func (c *Count) Type() string { return "number" }

func (c *Count) String() string {
	if *c == 0 {
		return "" // no default to show
	}
	return strconv.FormatInt(int64(*c), 10)
}

func (c *Count) Set(value string) error {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n <= 0 {
		return errors.New("want a positive number")
	}
	*c = Count(n)
	return nil
}

// Processors is a flag value that accepts a number of processors, such as 2 or
// 0.5.
type Processors float64

func (p *Processors) Type() string { return "number" }

func (p *Processors) String() string {
	if *p == 0 {
		return "" // no default to show
	}
	return strconv.FormatFloat(float64(*p), 'f', -1, 64)
}

func (p *Processors) Set(value string) error {
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(n) || n < 0.01 || n > 1<<20 {
		return errors.New("want a number of processors from 0.01, such as 2 or 0.5")
	}
	*p = Processors(n)
	return nil
}

// KeyValues is a repeatable flag that accepts KEY=VALUE.
type KeyValues map[string]string

func (kv *KeyValues) Type() string { return "KEY=VALUE" }

func (kv *KeyValues) String() string {
	pairs := make([]string, 0, len(*kv))
	for k, v := range *kv {
		pairs = append(pairs, k+"="+v)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

func (kv *KeyValues) Set(value string) error {
	k, v, err := parseKeyValue(value)
	if err != nil {
		return err
	}
	if *kv == nil {
		*kv = make(KeyValues)
	}
	(*kv)[k] = v
	return nil
}

// Over returns the pairs of kv, and the pairs of base with keys that are not in kv.
func (kv KeyValues) Over(base map[string]string) map[string]string {
	all := maps.Clone(base)
	maps.Copy(all, kv)
	return all
}

func parseKeyValue(text string) (key, value string, err error) {
	key, value, ok := strings.Cut(text, "=")
	switch {
	case !ok:
		return "", "", errors.New("want KEY=VALUE")
	case key == "":
		return "", "", errors.New("want KEY=VALUE, the key is empty")
	case strings.ContainsRune(text, 0):
		return "", "", errors.New("a NUL byte is not allowed")
	}
	return key, value, nil
}
