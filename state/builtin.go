package state

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// UUID is a Python uuid.UUID. It can also be decoded into any
// encoding.TextUnmarshaler.
type UUID [16]byte

func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

func (u UUID) form() (Kind, any, error) { return KindUUID, u.String(), nil }

// ParseUUID parses the form with dashes.
func ParseUUID(text string) (UUID, error) {
	var u UUID
	digits := strings.ReplaceAll(text, "-", "")
	if len(digits) != 2*len(u) {
		return u, fmt.Errorf("malformed UUID %.40q", text)
	}
	if _, err := hex.Decode(u[:], []byte(digits)); err != nil || u.String() != text {
		return u, fmt.Errorf("malformed UUID %.40q", text)
	}
	return u, nil
}

// Path is a Python pathlib path.
type Path struct {
	Path string `py:"path"`
	// Windows reports whether the path is a Windows path. In a sandbox, a Windows path is always a
	// pure path.
	Windows bool `py:"windows,omitempty"`
	// Pure reports whether the path is a pure path, without access to a file system.
	Pure bool `py:"pure,omitempty"`
}

type pathPayload Path

func (p Path) form() (Kind, any, error) { return KindPath, pathPayload(p), nil }

func (p Path) String() string { return p.Path }

// Range is a Python range.
type Range struct{ Start, Stop, Step int64 }

func (r Range) form() (Kind, any, error) {
	_, err := rangeOf([3]int64{r.Start, r.Stop, r.Step})
	return KindRange, []int64{r.Start, r.Stop, r.Step}, err
}

func rangeOf(p [3]int64) (Range, error) {
	if p[2] == 0 {
		return Range{}, errors.New("a range with the step 0")
	}
	return Range{p[0], p[1], p[2]}, nil
}

// Len returns the number of items, or the largest int if there are more.
func (r Range) Len() int {
	low, high, step := r.Start, r.Stop, uint64(r.Step)
	if r.Step < 0 {
		low, high, step = r.Stop, r.Start, -step
	}
	if step == 0 || high <= low {
		return 0
	}
	return int(min((uint64(high)-uint64(low)-1)/step+1, 1<<63-1))
}

// Slice is a Python slice; nil means None.
type Slice struct{ Start, Stop, Step any }

func (s Slice) form() (Kind, any, error) { return KindSlice, []any{s.Start, s.Stop, s.Step}, nil }

func sliceOf(p [3]any) (Slice, error) { return Slice{p[0], p[1], p[2]}, nil }

// Deque is a Python collections.deque.
type Deque struct {
	Items []any
	// MaxLen is the maximum length. Nil means no limit.
	MaxLen *int
}

type dequePayload struct {
	Items  []any `py:"items"`
	MaxLen *int  `py:"maxlen"`
}

func (d Deque) form() (Kind, any, error) {
	_, err := dequeOf(dequePayload(d))
	return KindDeque, dequePayload(d), err
}

func dequeOf(p dequePayload) (Deque, error) {
	if p.MaxLen != nil && (*p.MaxLen < 0 || len(p.Items) > *p.MaxLen) {
		return Deque{}, fmt.Errorf("a deque of %d items whose maximum is %d", len(p.Items), *p.MaxLen)
	}
	return Deque(p), nil
}

// Singleton is a Python object that exists only once.
type Singleton string

// These are the singletons.
const (
	Ellipsis       Singleton = "Ellipsis"
	NotImplemented Singleton = "NotImplemented"
	// NA and NaT are the pandas objects for a missing value and a missing time.
	NA  Singleton = "NA"
	NaT Singleton = "NaT"
)

func (s Singleton) form() (Kind, any, error) {
	_, err := singletonOf(string(s))
	return KindSingleton, string(s), err
}

func singletonOf(name string) (Singleton, error) {
	switch s := Singleton(name); s {
	case Ellipsis, NotImplemented, NA, NaT:
		return s, nil
	}
	return "", fmt.Errorf("unknown singleton %.40q", name)
}
