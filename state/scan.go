package state

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// node is one value of the document. A scalar is complete; for a container only
// the opening has been read.
type node struct {
	kind Kind
	// tagged means that the container is inside an object that names the kind of the container.
	tagged bool
	// form means that kind is the kind of a form, and that the payload of the form follows. See the type
	// form.
	form  bool
	truth bool
	int   int64
	float float64
	str   string
	// rare is a *big.Int beyond 64 bits, a []byte, a []float64 (a list that was
	// sent as one block), a time.Time, a Timedelta or an Opaque.
	rare any
}

// floats returns a list of floats that was sent as one block, and nil for any other value.
func (n node) floats() []float64 {
	floats, _ := n.rare.([]float64)
	return floats
}

// container reports whether n is only the beginning of a value, so that the scanner returns the items of
// the value next.
func (n node) container() bool {
	switch n.kind {
	case KindList, KindTuple, KindSet, KindFrozenSet, KindDict:
		return n.floats() == nil
	}
	return false
}

// big returns an int beyond 64 bits, and nil for any other value.
func (n node) big() *big.Int {
	i, _ := n.rare.(*big.Int)
	return i
}

// scanner reads a document strictly: it accepts only the output of the encoders.
type scanner struct {
	data   []byte
	pos    int
	depth  int
	nodes  int
	limits Bounds
	// deepest and opaque describe the part of the document that was read so far.
	deepest int
	opaque  bool
	zones   zones
	// blobs contains the blobs that the document may name. The bytes of a blob are copied when they
	// become part of a decoded value. A scanner that only checks the document does not copy them.
	blobs Blobs
	check bool
}

func (s *scanner) fail(format string, args ...any) error {
	return &DecodeError{Offset: s.pos, Reason: fmt.Sprintf(format, args...)}
}

// literal reads exactly text. It returns an error if something else follows.
func (s *scanner) literal(text string) error {
	if !s.skip(text) {
		return s.fail("expected %s", text)
	}
	return nil
}

// skip reads text if the document continues with it, and reports whether it does.
func (s *scanner) skip(text string) bool {
	if len(s.data)-s.pos < len(text) || string(s.data[s.pos:s.pos+len(text)]) != text {
		return false
	}
	s.pos += len(text)
	return true
}

func (s *scanner) count(n int) error {
	if s.nodes += n; s.nodes > s.limits.MaxNodes {
		return &LimitError{Limit: "MaxNodes", Max: int64(s.limits.MaxNodes)}
	}
	return nil
}

// next reads a scalar, or the opening of a container.
func (s *scanner) next() (n node, err error) {
	if err := s.count(1); err != nil {
		return n, err
	}
	if s.pos == len(s.data) {
		return n, s.fail("the document ends in the middle")
	}
	switch c := s.data[s.pos]; {
	case c == 'n':
		n.kind = KindNone
		return n, s.literal("null")
	case c == 't':
		n.kind, n.truth = KindBool, true
		return n, s.literal("true")
	case c == 'f':
		n.kind = KindBool
		return n, s.literal("false")
	case c == '"':
		n.kind = KindStr
		n.str, err = s.string()
		return n, err
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == '[':
		s.pos++
		n.kind = KindList
		return n, s.enter()
	case c == '{':
		s.pos++
		if s.skip(`"$":`) {
			n.tagged = true
			return n, s.kind(&n)
		}
		n.kind = KindDict
		return n, s.enter()
	}
	return n, s.fail("unexpected %q", s.data[s.pos])
}

func (s *scanner) enter() error {
	if s.depth++; s.depth > s.limits.MaxDepth {
		return &LimitError{Limit: "MaxDepth", Max: int64(s.limits.MaxDepth)}
	}
	s.deepest = max(s.deepest, s.depth)
	return nil
}

// kind reads the rest of an object that names its kind.
func (s *scanner) kind(n *node) error {
	name, err := s.plain()
	if err != nil {
		return err
	}
	n.kind = Kind(name)
	switch n.kind {
	case KindTuple, KindSet, KindFrozenSet, KindDict:
		if err := s.literal(`,"items":[`); err != nil {
			return err
		}
		return s.enter()
	case KindList:
		err = s.packed(n)
	case KindInt:
		err = s.hex(n)
	case KindFloat:
		err = s.special(n)
	case KindStr, KindBytes, KindByteArray:
		err = s.base64(n)
	case KindDatetime:
		err = s.datetime(n)
	case KindTimedelta:
		err = s.timedelta(n)
	case KindOpaque:
		err = s.foreign(n)
	default:
		if forms[n.kind] == nil {
			return s.fail("unknown kind %.32q", name)
		}
		n.form = true
		return s.literal(`,"value":`)
	}
	if err != nil {
		return err
	}
	return s.literal("}")
}

// plain reads a string of the envelope: printable ASCII without escapes.
func (s *scanner) plain() (string, error) {
	if err := s.literal(`"`); err != nil {
		return "", err
	}
	for i := s.pos; i < len(s.data); i++ {
		switch c := s.data[i]; {
		case c == '"':
			text := s.data[s.pos:i]
			s.pos = i + 1
			return string(text), nil
		case c < ' ' || c > '~' || c == '\\':
			return "", s.fail("unexpected %q in the envelope", c)
		}
	}
	return "", s.fail("the document ends in the middle")
}

// block reads base64, or the name of a blob.
func (s *scanner) block() ([]byte, error) {
	if s.skip(blobStart[:len(blobStart)-1]) {
		return s.blob()
	}
	if err := s.literal(`"`); err != nil {
		return nil, err
	}
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] != '"' {
		if s.data[s.pos] < ' ' { // the decoder would skip line breaks
			return nil, s.fail("unexpected %q in base64", s.data[s.pos])
		}
		s.pos++
	}
	text := s.data[start:s.pos]
	out := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(out, text)
	if err != nil {
		return nil, s.fail("base64: %v", err)
	}
	return out[:n], s.literal(`"`)
}

func (s *scanner) packed(n *node) error {
	if err := s.literal(`,"float64":`); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	s.depth--
	data, err := s.block()
	if err != nil {
		return err
	}
	if len(data)%8 != 0 {
		return s.fail("%d bytes are not a whole number of floats", len(data))
	}
	if err := s.count(len(data) / 8); err != nil {
		return err
	}
	floats := make([]float64, len(data)/8)
	for i := range floats {
		floats[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
	}
	n.rare = floats
	return nil
}

func (s *scanner) hex(n *node) error {
	if err := s.literal(`,"hex":`); err != nil {
		return err
	}
	text, err := s.plain()
	if err != nil {
		return err
	}
	digits := strings.TrimPrefix(text, "-")
	if len(digits) > s.limits.MaxIntDigits {
		return &LimitError{Limit: "MaxIntDigits", Max: int64(s.limits.MaxIntDigits)}
	}
	if strings.Trim(digits, hexDigits) != "" || digits == "" || digits[0] == '0' {
		return s.fail("malformed integer")
	}
	i, _ := new(big.Int).SetString(text, 16)
	if i.IsInt64() {
		return s.fail("an integer of 64 bits in hexadecimal")
	}
	n.rare = i
	return nil
}

func (s *scanner) special(n *node) error {
	if err := s.literal(`,"text":`); err != nil {
		return err
	}
	text, err := s.plain()
	if err != nil {
		return err
	}
	switch text {
	case "nan":
		n.float = math.NaN()
	case "inf":
		n.float = math.Inf(1)
	case "-inf":
		n.float = math.Inf(-1)
	default:
		return s.fail("unknown float %.32q", text)
	}
	return nil
}

func (s *scanner) base64(n *node) error {
	if err := s.literal(`,"base64":`); err != nil {
		return err
	}
	data, err := s.block()
	if err != nil {
		return err
	}
	if n.kind != KindStr {
		n.rare = data
		return nil
	}
	if n.str = string(data); utf8.ValidString(n.str) || !isSurrogatePass(n.str) {
		return s.fail("a str in base64 that has no surrogate")
	}
	return nil
}

func (s *scanner) datetime(n *node) error {
	if err := s.literal(`,"iso":`); err != nil {
		return err
	}
	text, err := s.plain()
	if err != nil {
		return err
	}
	wall, err := parseExactly(isoLayout, text)
	if err != nil || wall.Year() < 1 {
		return s.fail("malformed datetime %.40q", text)
	}
	if !s.skip(`,"offset":`) {
		n.rare = time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), Naive)
		return nil
	}
	offset, err := s.integer()
	if err != nil {
		return err
	}
	if offset <= -secondsPerDay || offset >= secondsPerDay {
		return s.fail("an offset of %d seconds", offset)
	}
	var name string
	if s.skip(`,"zone":`) {
		if name, err = s.string(); err != nil {
			return err
		}
	}
	if s.zones == nil {
		s.zones = zones{}
	}
	n.rare = located(wall, int(offset), name, s.zones.load)
	return nil
}

func (s *scanner) timedelta(n *node) (err error) {
	var delta Timedelta
	for _, part := range []struct {
		name string
		into *int64
		max  int64
	}{
		{`,"days":`, &delta.Days, maxTimedeltaDays},
		{`,"seconds":`, &delta.Seconds, secondsPerDay - 1},
		{`,"microseconds":`, &delta.Microseconds, usPerSecond - 1},
	} {
		if err := s.literal(part.name); err != nil {
			return err
		}
		if *part.into, err = s.integer(); err != nil {
			return err
		}
		if *part.into > part.max || *part.into < 0 && (part.into != &delta.Days || *part.into < -part.max) {
			return s.fail("a timedelta with%s%d", part.name, *part.into)
		}
	}
	n.rare = delta
	return nil
}

func (s *scanner) foreign(n *node) (err error) {
	s.opaque = true
	var o Opaque
	for _, part := range []struct {
		name string
		into *string
	}{{`,"type":`, &o.Type}, {`,"repr":`, &o.Repr}, {`,"reason":`, &o.Reason}} {
		if err := s.literal(part.name); err != nil {
			return err
		}
		if *part.into, err = s.string(); err != nil {
			return err
		}
	}
	n.rare = o
	return nil
}

func (s *scanner) integer() (int64, error) {
	n, err := s.number()
	if err == nil && n.kind != KindInt {
		err = s.fail("expected an integer")
	}
	return n.int, err
}

// number reads a number in JSON's grammar. A number with neither a point nor an exponent is an int.
func (s *scanner) number() (n node, err error) {
	start := s.pos
	s.skip("-")
	whole := s.digits()
	if whole == 0 || whole > 1 && s.data[s.pos-whole] == '0' {
		return n, s.fail("malformed number")
	}
	n.kind = KindInt
	if s.skip(".") {
		n.kind = KindFloat
		if s.digits() == 0 {
			return n, s.fail("malformed number")
		}
	}
	if s.skip("e") || s.skip("E") {
		n.kind = KindFloat
		if !s.skip("-") {
			s.skip("+")
		}
		if s.digits() == 0 {
			return n, s.fail("malformed number")
		}
	}
	text := s.data[start:s.pos]
	if n.kind == KindInt && whole <= maxFast && string(text) != "-0" {
		for _, c := range text[len(text)-whole:] {
			n.int = 10*n.int + int64(c-'0')
		}
		if text[0] == '-' {
			n.int = -n.int
		}
		return n, nil
	}
	if len(text) > maxNumber {
		return n, s.fail("a number of %d characters", len(text))
	}
	if n.kind == KindFloat {
		n.float, err = strconv.ParseFloat(string(text), 64)
	} else if string(text) == "-0" {
		err = strconv.ErrSyntax
	} else {
		n.int, err = strconv.ParseInt(string(text), 10, 64)
	}
	if err != nil {
		return n, s.fail("number %.32q: out of range", text)
	}
	return n, nil
}

// maxNumber limits the length of a number. The longest float or 64-bit integer is shorter:
// -2.2250738585072014e-308.
const maxNumber = 32

// maxFast is a count of digits: a number with at most maxFast digits always fits into 64 bits.
const maxFast = 18

func (s *scanner) digits() int {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}

// string reads a JSON string.
func (s *scanner) string() (string, error) {
	if err := s.literal(`"`); err != nil {
		return "", err
	}
	start := s.pos
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			text := s.data[start:s.pos]
			if !utf8.Valid(text) {
				return "", s.fail("a string that is not UTF-8")
			}
			s.pos++
			return string(text), nil
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			return "", s.fail("unexpected %q in a string", c)
		}
		s.pos++
	}
	return "", s.fail("the document ends in the middle")
}

// escaped continues from the first backslash of a string.
func (s *scanner) escaped(start int) (string, error) {
	out := append([]byte(nil), s.data[start:s.pos]...)
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		switch {
		case c == '"':
			if !utf8.Valid(out) {
				return "", s.fail("a string that is not UTF-8")
			}
			s.pos++
			return string(out), nil
		case c < ' ':
			return "", s.fail("unexpected %q in a string", c)
		case c != '\\':
			out = append(out, c)
			s.pos++
			continue
		}
		if s.pos+1 == len(s.data) {
			break
		}
		s.pos += 2
		switch c = s.data[s.pos-1]; c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, err := s.rune()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
		default:
			return "", s.fail("unknown escape %q", c)
		}
	}
	return "", s.fail("the document ends in the middle")
}

// rune reads the digits of \u, and the second half of a surrogate pair. A lone half is an error,
// because a string with lone surrogates is encoded as a separate kind.
func (s *scanner) rune() (rune, error) {
	unit := func() (rune, error) {
		if len(s.data)-s.pos < 4 {
			return 0, s.fail("the document ends in the middle")
		}
		u, err := strconv.ParseUint(string(s.data[s.pos:s.pos+4]), 16, 16)
		if err != nil {
			return 0, s.fail("malformed escape")
		}
		s.pos += 4
		return rune(u), nil
	}
	r, err := unit()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if s.skip(`\u`) {
		low, err := unit()
		if err != nil {
			return 0, err
		}
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			return r, nil
		}
	}
	return 0, s.fail("half of a surrogate pair")
}
