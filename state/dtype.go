package state

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// dtype is the parsed form of a text such as "<f8" or "<M8[ns]".
type dtype struct {
	kind  byte // numpy's letter of the kind: b i u f c S U V M m O, or R for a record with fields
	size  int
	order binary.ByteOrder
	// unit and multiple are set only for the kinds M and m: for "[25us]" they are "us" and 25.
	unit     string
	multiple int64
	fields   []recordField
}

// recordField is a field of a structured dtype. A field without a name is padding.
type recordField struct {
	name   string
	offset int
	count  int // the number of elements; above 1 the field is a subarray
	dtype  dtype
}

const (
	maxDtypeText  = 64 << 10
	maxDtypeDepth = 16
	maxItemSize   = 1 << 28
)

var dtypeText = lazyregexp.New(`^([<>|])([biufcSUVMmO])(\d{0,9})(?:\[(\d{0,9})([a-zA-Z]{1,2})\])?$`)

// widths contains the allowed sizes of an element for each kind.
var widths = map[byte][]int{'b': {1}, 'i': {1, 2, 4, 8}, 'u': {1, 2, 4, 8}, 'f': {2, 4, 8}, 'c': {8, 16}, 'M': {8}, 'm': {8}}

func parseDtype(text string) (dtype, error) {
	if len(text) > maxDtypeText {
		return dtype{}, fmt.Errorf("a dtype of %d bytes", len(text))
	}
	if strings.HasPrefix(text, "[") {
		return parseRecord([]byte(text), 0)
	}
	parts := dtypeText().FindStringSubmatch(text)
	if parts == nil {
		return dtype{}, fmt.Errorf("unknown dtype %.40q", text)
	}
	t := dtype{kind: parts[2][0], order: binary.LittleEndian, unit: parts[5], multiple: 1}
	if parts[1] == ">" {
		t.order = binary.BigEndian
	}
	if parts[4] != "" {
		t.multiple, _ = strconv.ParseInt(parts[4], 10, 64)
	}
	t.size, _ = strconv.Atoi("0" + parts[3])
	timed := t.kind == 'M' || t.kind == 'm'
	switch sizes, fixed := widths[t.kind]; {
	case t.unit != "" && !timed, t.kind == 'O' && parts[3] != "", t.multiple < 1:
		return dtype{}, fmt.Errorf("unknown dtype %.40q", text)
	case fixed:
		for _, size := range sizes {
			if size == t.size {
				return t, nil
			}
		}
		return dtype{}, fmt.Errorf("elements of the dtype %.40q have no Go form", text)
	case t.kind == 'U':
		t.size *= 4
	}
	if t.size > maxItemSize {
		return dtype{}, fmt.Errorf("a dtype of %d bytes an element", t.size)
	}
	return t, nil
}

// parseRecord parses numpy's descr of a structured dtype, as JSON.
func parseRecord(text []byte, depth int) (dtype, error) {
	var descr [][]json.RawMessage
	if depth == maxDtypeDepth {
		return dtype{}, fmt.Errorf("a dtype nested more than %d deep", maxDtypeDepth)
	}
	if err := json.Unmarshal(text, &descr); err != nil {
		return dtype{}, fmt.Errorf("malformed dtype %.40q", text)
	}
	record := dtype{kind: 'R', order: binary.LittleEndian}
	for _, parts := range descr {
		f := recordField{offset: record.size, count: 1}
		var name string
		var shape []int
		if len(parts) < 2 || len(parts) > 3 || json.Unmarshal(parts[0], &f.name) != nil || len(parts) == 3 && json.Unmarshal(parts[2], &shape) != nil {
			return dtype{}, fmt.Errorf("malformed dtype %.40q", text)
		}
		var err error
		if json.Unmarshal(parts[1], &name) == nil {
			f.dtype, err = parseDtype(name)
		} else {
			f.dtype, err = parseRecord(parts[1], depth+1)
		}
		if err != nil {
			return dtype{}, err
		}
		if f.dtype.kind == 'O' {
			return dtype{}, fmt.Errorf("a structured dtype with objects in it")
		}
		if f.count, err = elementCount(shape, maxItemSize); err != nil {
			return dtype{}, err
		}
		if f.dtype.size > 0 && f.count > (maxItemSize-record.size)/f.dtype.size {
			return dtype{}, fmt.Errorf("a dtype of more than %d bytes an element", maxItemSize)
		}
		record.size += f.count * f.dtype.size
		record.fields = append(record.fields, f)
	}
	return record, nil
}

// elementCount multiplies the lengths of a shape. It returns an error for negative lengths and
// for products beyond limit.
func elementCount(shape []int, limit int) (int, error) {
	n := uint64(1)
	for _, side := range shape {
		if side < 0 {
			return 0, fmt.Errorf("a shape with the side %d", side)
		}
		if side == 0 {
			n = 0
		}
	}
	for _, side := range shape {
		high, low := bits.Mul64(n, uint64(side))
		if high != 0 || low > uint64(limit) {
			return 0, &LimitError{Limit: "MaxElements", Max: int64(limit)}
		}
		n = low
	}
	return int(n), nil
}

// value returns one element as a Go value. It returns an error for a datetime64 or timedelta64
// that Go cannot represent.
func (t dtype) value(b []byte) (any, error) {
	switch t.kind {
	case 'b':
		return b[0] != 0, nil
	case 'i':
		return t.int(b), nil
	case 'u':
		return t.uint(b), nil
	case 'f':
		return t.float(b), nil
	case 'c':
		half := dtype{kind: 'f', size: t.size / 2, order: t.order}
		return complex(half.float(b[:half.size]), half.float(b[half.size:])), nil
	case 'S':
		return []byte(strings.TrimRight(string(b), "\x00")), nil
	case 'V':
		return b, nil
	case 'U':
		return t.text(b)
	case 'M', 'm':
		return t.time(t.int(b))
	case 'R':
		return t.record(b)
	}
	return nil, fmt.Errorf("an element of the kind %q has no Go form", t.kind)
}

func (t dtype) uint(b []byte) uint64 {
	switch t.size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(t.order.Uint16(b))
	case 4:
		return uint64(t.order.Uint32(b))
	}
	return t.order.Uint64(b)
}

func (t dtype) int(b []byte) int64 {
	unused := 64 - 8*t.size
	return int64(t.uint(b)<<unused) >> unused
}

func (t dtype) float(b []byte) float64 {
	switch t.size {
	case 2:
		return half(t.order.Uint16(b))
	case 4:
		return float64(math.Float32frombits(t.order.Uint32(b)))
	}
	return math.Float64frombits(t.order.Uint64(b))
}

// half converts a 16-bit float.
func half(h uint16) float64 {
	exponent, fraction := int(h>>10&0x1f), float64(h&0x3ff)
	f := math.Ldexp(1+fraction/1024, exponent-15)
	switch {
	case exponent == 0:
		f = math.Ldexp(fraction, -24)
	case exponent == 0x1f && fraction == 0:
		f = math.Inf(1)
	case exponent == 0x1f:
		f = math.NaN()
	}
	if h>>15 != 0 {
		f = -f
	}
	return f
}

func (t dtype) text(b []byte) (string, error) {
	var out []byte
	for ; len(b) >= 4; b = b[4:] {
		r := rune(t.order.Uint32(b))
		if !utf8.ValidRune(r) {
			return "", fmt.Errorf("a str with the character %#x, which Go does not have", uint32(r))
		}
		out = utf8.AppendRune(out, r)
	}
	return strings.TrimRight(string(out), "\x00"), nil
}

func (t dtype) time(value int64) (any, error) {
	if value == math.MinInt64 {
		return NaT, nil
	}
	if t.kind == 'M' {
		if x, ok := unitTime(value, t.unit, t.multiple); ok {
			return x.In(Naive), nil
		}
		return nil, fmt.Errorf("a datetime64 of %d in %.8q has no Go form", value, t.unit)
	}
	step := int64(stepOf(t.unit))
	if step == 0 {
		return nil, fmt.Errorf("a timedelta64 in %.8q has no Go form", t.unit)
	}
	var seconds, us int64
	switch {
	case t.multiple > math.MaxInt64/step || value > math.MaxInt64/(step*t.multiple) || value < math.MinInt64/(step*t.multiple):
		if step < 1_000_000_000 {
			perSecond := 1_000_000_000 / step
			if t.multiple != 1 {
				return nil, fmt.Errorf("a timedelta64 of %d times %d %s has no Go form", value, t.multiple, t.unit)
			}
			seconds, us = floorDiv(value, perSecond), floorMod(value, perSecond)*(1_000_000/perSecond)
		} else {
			perStep := step / 1_000_000_000 * t.multiple
			if perStep < 1 || value > math.MaxInt64/perStep || value < math.MinInt64/perStep {
				return nil, fmt.Errorf("a timedelta64 of %d in %s has no Go form", value, t.unit)
			}
			seconds = value * perStep
		}
		return Timedelta{floorDiv(seconds, secondsPerDay), floorMod(seconds, secondsPerDay), us}, nil
	}
	return time.Duration(value * step * t.multiple), nil
}

func (t dtype) record(b []byte) (any, error) {
	items := make(Dict, 0, len(t.fields))
	for _, f := range t.fields {
		if f.name == "" {
			continue
		}
		at := func(i int) (any, error) {
			start := f.offset + i*f.dtype.size
			return f.dtype.value(b[start : start+f.dtype.size])
		}
		if f.count == 1 {
			x, err := at(0)
			if err != nil {
				return nil, err
			}
			items = append(items, Item{f.name, x})
			continue
		}
		list := make([]any, f.count)
		for i := range list {
			var err error
			if list[i], err = at(i); err != nil {
				return nil, err
			}
		}
		items = append(items, Item{f.name, list})
	}
	return items, nil
}
