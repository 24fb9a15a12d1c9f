package state

import "time"

// Tuple is a Python tuple.
type Tuple []any

// Set is a Python set. The encoding sorts its items, because a set has no order. A
// map[K]struct{} also becomes a set.
type Set []any

// FrozenSet is a Python frozenset.
type FrozenSet []any

// Dict is a Python dict with its order. A key may be of any kind that Python can hash.
type Dict []Item

// Item is one entry of a [Dict].
type Item struct{ Key, Value any }

// Opaque describes a Python value that has no Go form. It cannot be sent back to Python.
type Opaque struct {
	// Type is the class with its module, such as "pandas.core.frame.DataFrame".
	Type string
	// Repr is the beginning of the value's repr.
	Repr string
	// Reason is the reason why a value of a supported type was not transferred: for example a cycle or
	// its size. Reason is usually empty.
	Reason string
}

// Naive is the location of times without a zone. A Python datetime without tzinfo is decoded into a
// time in Naive, and a time in Naive is sent as a datetime without tzinfo. In comparisons Naive is
// equal to UTC.
var Naive = time.FixedZone("naive", 0)

// PythonMarshaler is implemented by types that determine their Python form. The value that the
// method returns is encoded instead of the original value.
type PythonMarshaler interface {
	MarshalPython() (any, error)
}

// PythonUnmarshaler is implemented by types that decode themselves. The memory of v is shared, so
// the method must not change data that it gets from v.
type PythonUnmarshaler interface {
	UnmarshalPython(v Value) error
}

// Bounds limits the work that a document can cause. A zero field means its default.
type Bounds struct {
	// MaxBytes limits the bytes of the document and its blobs. The default is
	// [DefaultMaxBytes].
	MaxBytes int64
	// MaxDepth limits the nesting of containers. The default is
	// [DefaultMaxDepth].
	MaxDepth int
	// MaxNodes limits the number of values, including each value in a container. The default is
	// [DefaultMaxNodes].
	MaxNodes int
	// MaxIntDigits limits the hexadecimal digits of an integer. The default is
	// [DefaultMaxIntDigits].
	MaxIntDigits int
	// MaxElements limits the elements of an array or a column. The default is
	// [DefaultMaxElements].
	MaxElements int
	// MaxPixels limits the pixels of an image. The default is [DefaultMaxPixels].
	MaxPixels int
}

// These are the defaults of [Bounds].
const (
	DefaultMaxBytes     = 256 << 20
	DefaultMaxDepth     = 200
	DefaultMaxNodes     = 16 << 20
	DefaultMaxIntDigits = 1 << 18
	DefaultMaxElements  = 1 << 28
	DefaultMaxPixels    = 1 << 26
)

func (l Bounds) withDefaults() Bounds {
	if l.MaxBytes == 0 {
		l.MaxBytes = DefaultMaxBytes
	}
	if l.MaxDepth == 0 {
		l.MaxDepth = DefaultMaxDepth
	}
	if l.MaxNodes == 0 {
		l.MaxNodes = DefaultMaxNodes
	}
	if l.MaxIntDigits == 0 {
		l.MaxIntDigits = DefaultMaxIntDigits
	}
	if l.MaxElements == 0 {
		l.MaxElements = DefaultMaxElements
	}
	if l.MaxPixels == 0 {
		l.MaxPixels = DefaultMaxPixels
	}
	return l
}
