// Package state converts Go values to Python values and back.
//
// [Marshal] and [Unmarshal] work like the functions of encoding/json, but with Python values
// instead of JSON:
//
//	Go                                Python             back in Go, into any
//	nil, nil pointer                  None               nil
//	bool                              bool               bool
//	int…, uint…, *big.Int             int                int64, *big.Int beyond it
//	float32, float64                  float              float64
//	complex64, complex128             complex            complex128
//	Decimal                           Decimal            Decimal
//	*big.Rat                          Fraction           *big.Rat
//	string                            str                string
//	[]byte, [N]byte                   bytes              []byte
//	time.Time                         datetime           time.Time
//	Date, TimeOfDay                   date, time         Date, TimeOfDay
//	time.Duration, Timedelta          timedelta          time.Duration, Timedelta beyond 292 years
//	slice                             list               []any
//	array, Tuple                      tuple              Tuple
//	map[K]struct{}, Set               set                Set
//	FrozenSet                         frozenset          FrozenSet
//	map, struct, Dict                 dict               map[string]any, Dict when a key is not a string
//	Range, Slice, Deque               range, slice, deque  the same
//	UUID, Path                        UUID, Path         the same
//	Singleton                         ..., NotImplemented, pandas' NA and NaT  Singleton
//	Instance                          a subclass (OrderedDict, Counter), defaultdict,
//	                                  namedtuple, dataclass, Enum  Instance
//	Array, Scalar                     numpy's ndarray and scalars  the same
//	Table, Series, Index, Timestamp   pandas' DataFrame and so on  the same
//	Image                             PIL's Image        Image
//	Value                             its content
//	encoding.TextMarshaler            str                string
//	(refused)                         anything else      Opaque
//
// Integers are never converted to a float, and 1.0 stays a float. NaN, the infinities and -0.0 are
// preserved. A value decoded into a typed target must be of the kind in the same row of the table.
// These combinations are also accepted: an int into a float target when it is exact, a tuple or set
// into a slice, a list or tuple of the right length into an array, a bytearray into []byte, a dict
// into a struct, an Instance wherever its base is accepted, a Scalar into a number that can
// represent it, an Array into slices, a Timestamp into time.Time, a str in RFC 3339 into time.Time,
// a UUID or Decimal into an encoding.TextUnmarshaler.
//
// The conversion changes some values:
//
//   - Python's datetime and timedelta end at the microsecond; anything finer is
//     truncated. [Timestamp] has nanoseconds.
//   - A naive datetime, one without a zone, is a time.Time in the location
//     [Naive], and the other way round.
//   - The name of a time's location is kept if it is in the IANA database
//     ("Europe/Berlin", "CET", "UTC"); otherwise only the offset is kept. A name that a
//     program gave to an offset is kept if the database's zone of this name has the same
//     rules.
//   - A nil slice becomes an empty list, a nil map an empty dict.
//   - A str with surrogates, which Python allows, becomes a Go string with
//     each surrogate in its three-byte form (invalid UTF-8), and can be sent back
//     unchanged. Other strings that are not UTF-8 are refused: send them as []byte.
//   - A map[string]any has no order; decode into Dict to keep a dict's order.
//   - For a subclass of a builtin type, attributes that its base does not have are
//     not kept.
//   - An array that is not one block of memory arrives as one block, with the same
//     elements.
//   - For a DataFrame, attrs are not kept. The freq of an index is not kept if pandas cannot
//     recreate it from its name.
//   - Shared references are copied.
//
// Channels, functions, unsafe pointers, cycles, times before year 1, nesting deeper than
// [DefaultMaxDepth], and values of more than [DefaultMaxBytes] are refused, with the path to the
// value. Python values that have no Go form arrive as Opaque: functions, classes, modules,
// generators, exceptions, open files, regular expressions, addresses, time zones, a matrix or
// masked array, a MultiIndex, periods, a pandas Timedelta. Objects that no other kernel could
// recreate also arrive as Opaque, with the reason: for example that their class was defined in a
// function.
//
// # Arrays and tables
//
// A slice of numbers becomes a list, and Python creates an object for each number in it. [ArrayOf]
// makes an ndarray instead, one block of memory on both sides, and [Elements] returns its elements;
// [TableOf] and [Rows] do the same for slices of structs and DataFrames. If the kernel's Python
// does not have numpy, pandas or PIL, it refuses a value that needs the missing library. The error
// names the variable and the library; the value never becomes a list.
//
// # Structs
//
// A struct becomes a dict of its exported fields. The tag `py:"name,omitempty"` sets the key and
// omits the field when it is zero; `py:"-"` always omits it. For a field without this tag, the tag
// json has the same effect. Without either tag, the key is the field's name. If the tags of an
// embedded struct contain no name, its fields are treated as fields of the outer struct. When
// decoding, a key selects the field with this key or, as with encoding/json, the field whose key
// differs only in case. A key without a field is ignored, and a field without a key keeps its
// value.
//
// # State
//
// [State] is a set of named values, each encoded and hashed once, that a run sends to a sandbox
// and reads back.
//
// [State.WriteTo] saves a state to a file, and [Load] reads it. A new sandbox can then continue
// where an old sandbox stopped.
//
// # The wire
//
// A document is strict JSON, {"v":1,"value":…}, without white space. None, bool, int within 64
// bits, finite floats, str, list and dict with string keys are plain JSON; a float always has a
// point or an exponent. Everything else is an object. Its first key is "$", with the name of the
// kind. A dict that has the key "$" is written as pairs. Kinds that consist of other kinds are
// {"$":kind,"value":…}. In a [Value], bytes of 64 KiB and more are stored outside the document, and
// the document contains {"$":"blob","sha256":…,"size":…} in their place. [Marshal] writes such
// bytes as base64. The encoding is canonical: equal values of the same types and order have the
// same bytes here and in the Python codec, so a hash shows every change.
package state
