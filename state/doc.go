// Package state turns Go values into Python values and back.
//
// [Marshal] and [Unmarshal] work as those of encoding/json do, with Python on
// the other side:
//
//	Go                                Python             back in Go, into any
//	nil, nil pointer                  None               nil
//	bool                              bool               bool
//	int…, uint…, *big.Int             int                int64, *big.Int beyond it
//	float32, float64                  float              float64
//	string                            str                string
//	[]byte, [N]byte                   bytes              []byte
//	time.Time                         datetime           time.Time
//	time.Duration                     timedelta          time.Duration
//	slice                             list               []any
//	array, Tuple                      tuple              Tuple
//	map[K]struct{}, Set               set                Set
//	FrozenSet                         frozenset          FrozenSet
//	map, struct, Dict                 dict               map[string]any, Dict when a key is no string
//	Value                             what it holds
//	encoding.TextMarshaler            str                string
//	(refused)                         anything else      Opaque
//
// Integers never pass through a float, and 1.0 stays a float. NaN, the
// infinities and -0.0 survive. A value decoded into a typed target must be of
// the kind that the table pairs with it; beyond that, an int goes into a float
// target where that is exact, a tuple or set into a slice, a list or tuple of
// the right length into an array, a bytearray into []byte, a dict into a struct.
//
// What changes on the way, and how:
//
//   - Python's datetime and timedelta end at the microsecond: what is finer is
//     cut off.
//   - A naive datetime, one without a zone, is a time.Time in the location
//     [Naive], and the other way round.
//   - The name of a time's location is kept when it is one of the IANA database
//     ("Europe/Berlin", "UTC"); otherwise the offset alone is.
//   - A nil slice is an empty list, a nil map an empty dict.
//   - A str with lone surrogates, which Python allows, is a Go string with each
//     surrogate in its three-byte form (invalid UTF-8); it goes back as it came.
//     Other strings that are not UTF-8 are refused: send them as []byte.
//   - A map[string]any has no order; decode into [Dict] to keep a dict's.
//   - A subclass comes as its base: a Counter as a dict, an IntEnum as an int.
//   - Shared references are copied.
//
// Channels, functions, complex numbers, unsafe pointers, cycles, and nesting
// deeper than [DefaultMaxDepth] are refused with the path to the value. What
// Python has and Go has not (a function, a data frame, an open file) comes as
// [Opaque].
//
// # Structs
//
// A struct is a dict of its exported fields. The tag `py:"name,omitempty"` sets
// the key and leaves the field out when it is zero; `py:"-"` leaves it out
// always. Fields of embedded structs without a tag are taken as the outer
// struct's own. A key without a field is ignored, a field without a key keeps
// what it had.
//
// # State
//
// [State] is a set of named values, each encoded and hashed once, that a run
// sends to a sandbox and takes back.
//
// # The wire
//
// A document is strict JSON, {"v":1,"value":…}, without white space. None, bool,
// int within 64 bits, finite floats, str, list and dict with string keys are
// JSON's own; a float always has a point or an exponent. All else is an object
// whose first key is "$" and names the kind; a dict that has the key "$" goes as
// pairs. The encoding is canonical: equal values of the same types and order
// give equal bytes here and in the Python codec, so a hash tells what changed.
package state
