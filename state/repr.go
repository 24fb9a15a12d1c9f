package state

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxShown limits the elements of an array or table that String prints. For a larger array or
// table, it prints only the shape.
const maxShown = 1000

// String returns the value as text for people and models, in the form of Python's repr. Times
// are in ISO 8601. Large arrays and tables, and images, appear only with their type and size.
// The text is not meant for parsing: use [Value.Decode].
func (v Value) String() string {
	doc, blobs := v.Detached()
	d, err := newDecoder(doc, blobs, v.limits())
	if err != nil {
		return fmt.Sprintf("<%s>", v.Kind())
	}
	d.ordered = true
	x, err := d.any()
	if err != nil { // a dict may contain a key twice
		return fmt.Sprintf("<%s: %v>", v.Kind(), err)
	}
	return string(appendRepr(nil, x))
}

// appendRepr writes a value that the decoder returned.
func appendRepr(b []byte, x any) []byte {
	switch x := x.(type) {
	case nil:
		return append(b, "None"...)
	case bool:
		if x {
			return append(b, "True"...)
		}
		return append(b, "False"...)
	case float64:
		return append(b, floatRepr(x)...)
	case complex128:
		return append(b, complexRepr(x)...)
	case string:
		return appendStrRepr(b, x)
	case []byte:
		return appendBytesRepr(b, x)
	case []any:
		return appendItems(b, "[", x, "]")
	case Tuple:
		if len(x) == 1 {
			return appendItems(b, "(", x, ",)")
		}
		return appendItems(b, "(", x, ")")
	case Set:
		if len(x) == 0 {
			return append(b, "set()"...)
		}
		return appendItems(b, "{", x, "}")
	case FrozenSet:
		if len(x) == 0 {
			return append(b, "frozenset()"...)
		}
		return appendItems(b, "frozenset({", x, "})")
	case Dict:
		return appendDictRepr(b, x)
	case Deque:
		return appendItems(b, "deque([", x.Items, "])")
	case Slice:
		return appendItems(b, "slice(", []any{x.Start, x.Stop, x.Step}, ")")
	case Range:
		if x.Step == 1 {
			return fmt.Appendf(b, "range(%d, %d)", x.Start, x.Stop)
		}
		return fmt.Appendf(b, "range(%d, %d, %d)", x.Start, x.Stop, x.Step)
	case Instance:
		return appendInstanceRepr(b, x)
	case Array, Table, Series, Index, Image:
		return appendDataRepr(b, x)
	case Opaque:
		return append(b, x.Repr...)
	}
	return appendNamed(b, x)
}

// appendNamed writes values whose text contains the name of their type, and some other values that
// have a special text.
func appendNamed(b []byte, x any) []byte {
	name, text := "", fmt.Sprint(x)
	switch x := x.(type) {
	case Decimal:
		name = "Decimal"
	case UUID:
		name = "UUID"
	case Path:
		name = "Path"
	case Date:
		name = "date"
	case TimeOfDay:
		name = "time"
	case time.Time:
		name, text = "datetime", isoText(x)
	case Timestamp:
		name, text = "Timestamp", isoText(x.Time)
	case time.Duration:
		return appendNamed(b, TimedeltaOf(x))
	case Timedelta:
		return fmt.Appendf(b, "timedelta(days=%d, seconds=%d, microseconds=%d)", x.Days, x.Seconds, x.Microseconds)
	case *big.Rat:
		return fmt.Appendf(b, "Fraction(%v, %v)", x.Num(), x.Denom())
	case Scalar:
		if element, err := x.Value(); err == nil {
			return appendRepr(b, element)
		}

	}
	if name == "" {
		return append(b, text...)
	}
	return append(appendStrRepr(append(append(b, name...), '('), text), ')')
}

func isoText(t time.Time) string {
	if t.Location() == Naive {
		return t.Format("2006-01-02T15:04:05.999999999")
	}
	return t.Format(time.RFC3339Nano)
}

func appendItems(b []byte, open string, items []any, end string) []byte {
	b = append(b, open...)
	for i, x := range items {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendRepr(b, x)
	}
	return append(b, end...)
}

func appendDictRepr(b []byte, items Dict) []byte {
	b = append(b, '{')
	for i, item := range items {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendRepr(b, item.Key), ": "...)
		b = appendRepr(b, item.Value)
	}
	return append(b, '}')
}

// appendInstanceRepr writes the class without its module, as the repr of most Python classes does.
func appendInstanceRepr(b []byte, x Instance) []byte {
	parts := strings.Split(x.Type, ".")
	class := parts[len(parts)-1]
	fields, isDict := x.Value.(Dict)
	switch {
	case x.Kind == KindEnum && len(parts) > 1:
		return append(b, strings.Join(parts[len(parts)-2:], ".")...)
	case x.Kind == KindDefaultDict && x.Type == "":
		class = "defaultdict(None, "
	case x.Kind == KindDefaultDict:
		class = "defaultdict(" + class + ", "
	case (x.Kind == KindNamedTuple || x.Kind == KindDataclass) && isDict:
		b = append(append(b, class...), '(')
		for i, field := range fields {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendRepr(fmt.Appendf(b, "%v=", field.Key), field.Value)
		}
		return append(b, ')')
	default:
		class += "("
	}
	return append(appendRepr(append(b, class...), x.Value), ')')
}

// appendDataRepr appends the text of an array, series, index, table or image. The text contains the
// elements only if there are at most maxShown. The text of an image contains only its size and mode.
func appendDataRepr(b []byte, x any) []byte {
	switch x := x.(type) {
	case Array:
		// An array without elements may still have long dimensions.
		if n := x.Len(); n == 0 || n > maxShown {
			return fmt.Appendf(b, "<array of shape %s, dtype %.40s>", appendRepr(nil, tupleOf(x.Shape)), x.Dtype)
		}
		return append(appendSide(append(b, "array("...), x, x.Shape, 0), ')')
	case Series:
		return appendColumn(append(b, "Series("...), x.Column)
	case Index:
		return appendColumn(append(b, "Index("...), x.Column)
	case Table:
		if n := x.Len(); n > maxShown || n*len(x.Columns) > maxShown {
			names := make([]any, len(x.Columns))
			for i, c := range x.Columns {
				names[i] = c.Name
			}
			return fmt.Appendf(b, "<DataFrame of %d rows with the columns %s>", x.Len(), appendItems(nil, "", names[:min(len(names), 100)], ""))
		}
		b = append(b, "DataFrame({"...)
		for i, c := range x.Columns {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = append(appendRepr(b, c.Name), ": "...)
			b = appendElements(b, c.Len(), c.At)
		}
		return append(b, "})"...)
	case Image:
		return fmt.Appendf(b, "<Image of %d×%d, mode %s>", x.Width, x.Height, x.Mode)
	}
	return b
}

func tupleOf(shape []int) Tuple {
	t := make(Tuple, len(shape))
	for i, n := range shape {
		t[i] = int64(n)
	}
	return t
}

func appendColumn(b []byte, c Column) []byte {
	if n := c.Len(); n > maxShown {
		return fmt.Appendf(b, "%d values, dtype %s)", n, c.Dtype)
	}
	return append(appendElements(b, c.Len(), c.At), ')')
}

// appendSide writes one dimension of an array; at is the position of its first element.
func appendSide(b []byte, a Array, shape []int, at int) []byte {
	if len(shape) == 0 {
		x, _ := a.At(at) // the array was checked
		return appendRepr(b, x)
	}
	size := 1
	for _, n := range shape[1:] {
		size *= n
	}
	b = append(b, '[')
	for i := range shape[0] {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendSide(b, a, shape[1:], at+i*size)
	}
	return append(b, ']')
}

func appendElements(b []byte, n int, at func(int) (any, error)) []byte {
	items := make([]any, n)
	for i := range items {
		var err error
		if items[i], err = at(i); err != nil {
			items[i] = Opaque{Repr: "<" + err.Error() + ">"}
		}
	}
	return appendItems(b, "[", items, "]")
}

func floatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	return string(appendFloat(nil, f))
}

func complexRepr(c complex128) string {
	part := func(f float64) string { return strings.TrimSuffix(floatRepr(f), ".0") }
	imaginary := part(imag(c)) + "j"
	if real(c) == 0 && !math.Signbit(real(c)) {
		return imaginary
	}
	if imaginary[0] != '-' {
		imaginary = "+" + imaginary
	}
	return "(" + part(real(c)) + imaginary + ")"
}

// quoteFor returns the kind of quote that Python's repr uses for s.
func quoteFor(s string) byte {
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		return '"'
	}
	return '\''
}

func appendStrRepr(b []byte, s string) []byte {
	quote := quoteFor(s)
	b = append(b, quote)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 && i+3 <= len(s) { // a lone surrogate
			n, r = 3, rune(s[i]&0xf)<<12|rune(s[i+1]&0x3f)<<6|rune(s[i+2]&0x3f)
		}
		i += n
		switch {
		case r < utf8.RuneSelf:
			b = appendASCII(b, byte(r), quote)
		case unicode.IsPrint(r):
			b = utf8.AppendRune(b, r)
		case r < 0x100:
			b = fmt.Appendf(b, `\x%02x`, r)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\U%08x`, r)
		}
	}
	return append(b, quote)
}

func appendBytesRepr(b, data []byte) []byte {
	quote := quoteFor(string(data))
	b = append(b, 'b', quote)
	for _, c := range data {
		if c >= utf8.RuneSelf {
			b = fmt.Appendf(b, `\x%02x`, c)
			continue
		}
		b = appendASCII(b, c, quote)
	}
	return append(b, quote)
}

func appendASCII(b []byte, c, quote byte) []byte {
	switch c {
	case quote, '\\':
		return append(b, '\\', c)
	case '\n', '\r', '\t':
		return append(b, strconv.Quote(string(c))[1:3]...)
	}
	if c < ' ' || c == 0x7f {
		return fmt.Appendf(b, `\x%02x`, c)
	}
	return append(b, c)
}
