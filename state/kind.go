package state

// Kind is a kind of Python value.
type Kind string

// These are the kinds of values.
const (
	KindNone      Kind = "none"
	KindBool      Kind = "bool"
	KindInt       Kind = "int"
	KindFloat     Kind = "float"
	KindComplex   Kind = "complex"
	KindDecimal   Kind = "decimal"
	KindFraction  Kind = "fraction"
	KindStr       Kind = "str"
	KindBytes     Kind = "bytes"
	KindByteArray Kind = "bytearray"
	KindList      Kind = "list"
	KindTuple     Kind = "tuple"
	KindSet       Kind = "set"
	KindFrozenSet Kind = "frozenset"
	KindDict      Kind = "dict"
	KindDeque     Kind = "deque"
	KindRange     Kind = "range"
	KindSlice     Kind = "slice"
	KindDatetime  Kind = "datetime"
	KindDate      Kind = "date"
	KindTime      Kind = "time"
	KindTimedelta Kind = "timedelta"
	KindUUID      Kind = "uuid"
	KindPath      Kind = "path"
	// KindSingleton is an object that exists only once: see [Singleton].
	KindSingleton Kind = "singleton"

	// These are the kinds of an [Instance].
	KindSubclass    Kind = "subclass"
	KindDefaultDict Kind = "defaultdict"
	KindNamedTuple  Kind = "namedtuple"
	KindDataclass   Kind = "dataclass"
	KindEnum        Kind = "enum"

	// KindScalar is a numpy scalar, KindArray an ndarray.
	KindScalar Kind = "scalar"
	KindArray  Kind = "ndarray"
	// KindTable is a pandas DataFrame.
	KindTable     Kind = "dataframe"
	KindSeries    Kind = "series"
	KindIndex     Kind = "index"
	KindTimestamp Kind = "timestamp"
	// KindImage is a PIL Image.
	KindImage Kind = "image"

	KindOpaque Kind = "opaque"
)
