package state

import "time"

// Tuple is a Python tuple.
type Tuple []any

// Set is a Python set. Its items have no order of their own: the encoding sorts
// them. A map[K]struct{} also becomes a set.
type Set []any

// FrozenSet is a Python frozenset.
type FrozenSet []any

// Dict is a Python dict in its order, with keys of any kind that Python can
// hash.
type Dict []Item

// Item is one entry of a [Dict].
type Item struct{ Key, Value any }

// Opaque stands for a Python value that has no Go form. It cannot be sent back.
type Opaque struct {
	// Type is the class with its module, such as "pandas.core.frame.DataFrame".
	Type string
	// Repr is the start of the value's repr.
	Repr string
	// Reason says why the value did not arrive although its type would have
	// allowed it: a cycle, a size. It is usually empty.
	Reason string
}

// Naive is the location of times that have no zone: a Python datetime without
// tzinfo decodes into a time in Naive, and a time in Naive is sent as such a
// datetime. It counts as UTC in comparisons.
var Naive = time.FixedZone("naive", 0)

// PythonMarshaler is implemented by types that choose their Python form: the
// value returned is encoded in their place.
type PythonMarshaler interface {
	MarshalPython() (any, error)
}

// PythonUnmarshaler is implemented by types that decode themselves. The value
// refers to memory that may be shared; it must not be written to.
type PythonUnmarshaler interface {
	UnmarshalPython(v Value) error
}

// Bounds bounds the work that a document can cause the decoder. A zero field
// means its default.
type Bounds struct {
	// MaxBytes is the size of the document and its blobs. The default is
	// [DefaultMaxBytes].
	MaxBytes int64
	// MaxDepth limits the nesting of containers. The default is
	// [DefaultMaxDepth].
	MaxDepth int
	// MaxNodes is the number of values, counting each one in a container. The
	// default is [DefaultMaxNodes].
	MaxNodes int
	// MaxIntDigits is the number of hexadecimal digits of an integer. The default
	// is [DefaultMaxIntDigits].
	MaxIntDigits int
	// MaxElements is the number of elements of an array or a column. The default
	// is [DefaultMaxElements].
	MaxElements int
	// MaxPixels is the number of pixels of an image. The default is
	// [DefaultMaxPixels].
	MaxPixels int
}

// The defaults of [Bounds].
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
