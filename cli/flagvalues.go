package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// durationValue is a flag value that accepts Go durations ("90s", "1h30m") and
// plain seconds ("90"). It must be positive.
type durationValue time.Duration

func (d *durationValue) Type() string { return "duration" }

func (d *durationValue) String() string {
	if *d == 0 {
		return "" // no default to show
	}
	return time.Duration(*d).String()
}

func (d *durationValue) Set(value string) error {
	parsed, err := parseDuration(value)
	*d = durationValue(parsed)
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

// sizeValue is a flag value that accepts a number of bytes, or of KiB to TiB
// ("20GiB"). It must be positive.
type sizeValue int64

// sizeUnits are ordered from the largest to the smallest.
var sizeUnits = []struct {
	name string
	size int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

func (s *sizeValue) Type() string { return "size" }

func (s *sizeValue) String() string {
	for _, unit := range sizeUnits {
		if *s != 0 && int64(*s)%unit.size == 0 {
			return strconv.FormatInt(int64(*s)/unit.size, 10) + unit.name
		}
	}
	return ""
}

func (s *sizeValue) Set(value string) error {
	for _, unit := range sizeUnits {
		number, ok := strings.CutSuffix(value, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n <= 0 || n > math.MaxInt64/unit.size {
			break
		}
		*s = sizeValue(n * unit.size)
		return nil
	}
	return errors.New("want a positive number of bytes, or of KiB, MiB, GiB or TiB, such as 20GiB")
}

// keyValues is a repeatable flag that accepts KEY=VALUE.
type keyValues struct{ m map[string]string }

func (kv *keyValues) Type() string { return "KEY=VALUE" }

func (kv *keyValues) String() string {
	pairs := make([]string, 0, len(kv.m))
	for k, v := range kv.m {
		pairs = append(pairs, k+"="+v)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

func (kv *keyValues) Set(value string) error {
	k, v, err := parseKeyValue(value)
	if err != nil {
		return err
	}
	if kv.m == nil {
		kv.m = make(map[string]string)
	}
	kv.m[k] = v
	return nil
}

func parseKeyValue(text string) (key, value string, err error) {
	key, value, ok := strings.Cut(text, "=")
	switch {
	case !ok:
		return "", "", errors.New("want KEY=VALUE")
	case key == "":
		return "", "", errors.New("want KEY=VALUE, the key is empty")
	case strings.ContainsRune(text, 0):
		return "", "", errors.New("a NUL byte cannot be passed on")
	}
	return key, value, nil
}

// transfer is the value of one --upload or --download.
type transfer struct{ source, target string }

// uploads is a repeatable flag that accepts LOCAL:REMOTE, downloads one that
// accepts REMOTE:LOCAL. A local path may contain colons (C:\data), a remote one
// may not.
type (
	uploads   []transfer
	downloads []transfer
)

func (u *uploads) Type() string     { return "LOCAL:REMOTE" }
func (u *uploads) String() string   { return joinTransfers(*u) }
func (d *downloads) Type() string   { return "REMOTE:LOCAL" }
func (d *downloads) String() string { return joinTransfers(*d) }

func (u *uploads) Set(value string) error {
	t, err := parseTransfer(value, strings.LastIndexByte(value, ':'))
	if err != nil {
		return fmt.Errorf("want LOCAL:REMOTE, %w", err)
	}
	*u = append(*u, t)
	return nil
}

func (d *downloads) Set(value string) error {
	t, err := parseTransfer(value, strings.IndexByte(value, ':'))
	if err != nil {
		return fmt.Errorf("want REMOTE:LOCAL, %w", err)
	}
	*d = append(*d, t)
	return nil
}

func parseTransfer(value string, colon int) (transfer, error) {
	switch {
	case colon < 0:
		return transfer{}, errors.New("there is no colon")
	case colon == 0:
		return transfer{}, errors.New("the source is empty")
	case colon == len(value)-1:
		return transfer{}, errors.New("the target is empty")
	case strings.ContainsRune(value, 0):
		return transfer{}, errors.New("a path cannot hold a NUL byte")
	}
	return transfer{source: value[:colon], target: value[colon+1:]}, nil
}

func joinTransfers(ts []transfer) string {
	parts := make([]string, len(ts))
	for i, t := range ts {
		parts[i] = t.source + ":" + t.target
	}
	return strings.Join(parts, ",")
}
