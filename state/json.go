package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// FromJSON returns the Python value of a JSON text, like json.loads of Python: a number with a
// point or an exponent is a float, and any other number is an int.
//
// JSON has no NaN and no infinities, and kernels write null or a string instead. Therefore
// [Value.Decode] of a value from FromJSON accepts null, "nan", "inf" and "-inf" for a float target.
func FromJSON(text []byte) (Value, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return Value{}, fmt.Errorf("state: read JSON: %w", err)
	}
	r := jsonReader{scanner{data: compact.Bytes(), limits: Bounds{}.withDefaults()}}
	x, err := r.value()
	if err != nil {
		return Value{}, err
	}
	v, err := NewValue(x)
	v.json = true
	return v, err
}

// jsonReader decodes checked JSON without white space to Go values.
type jsonReader struct{ scanner }

func (r *jsonReader) value() (any, error) {
	if err := r.count(1); err != nil {
		return nil, err
	}
	switch c := r.data[r.pos]; {
	case c == '[':
		return r.list()
	case c == '{':
		return r.dict()
	case c == '"':
		return r.string()
	case r.skip("null"):
		return nil, nil
	case r.skip("true"):
		return true, nil
	case r.skip("false"):
		return false, nil
	}
	return r.number()
}

func (r *jsonReader) list() (any, error) {
	list := []any{}
	err := r.items("]", func() error {
		x, err := r.value()
		list = append(list, x)
		return err
	})
	return list, err
}

func (r *jsonReader) dict() (any, error) {
	dict := Dict{}
	err := r.items("}", func() error {
		key, err := r.string()
		if err != nil {
			return err
		}
		r.pos++ // the colon
		x, err := r.value()
		dict = append(dict, Item{key, x})
		return err
	})
	return dict, err
}

func (r *jsonReader) items(end string, read func() error) error {
	r.pos++ // the bracket
	if err := r.enter(); err != nil {
		return err
	}
	defer func() { r.depth-- }()
	for !r.skip(end) {
		r.skip(",")
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

func (r *jsonReader) number() (any, error) {
	start := r.pos
	for r.pos < len(r.data) && !strings.ContainsRune(",]}", rune(r.data[r.pos])) {
		r.pos++
	}
	text := string(r.data[start:r.pos])
	if strings.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, r.fail("number %.32q: out of range", text)
		}
		return f, nil
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	if digits := len(strings.TrimPrefix(text, "-")); digits > maxJSONInt {
		return nil, r.fail("an int of %d digits", digits)
	}
	i, _ := new(big.Int).SetString(text, 10)
	return i, nil
}

// maxJSONInt is Python's own limit of the digits of an int.
const maxJSONInt = 4300

// jsonFloat returns the float that null or a string in JSON represents.
func jsonFloat(n node) (f float64, ok bool) {
	switch n.kind {
	case KindNone:
		return math.NaN(), true
	case KindStr:
		switch strings.ToLower(n.str) {
		case "nan":
			return math.NaN(), true
		case "inf", "infinity":
			return math.Inf(1), true
		case "-inf", "-infinity":
			return math.Inf(-1), true
		}
	}
	return 0, false
}
