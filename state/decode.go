package state

import (
	"encoding"
	"fmt"
	"reflect"
)

var (
	unmarshalerType = reflect.TypeFor[PythonUnmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// Unmarshal decodes a document into the value that v points to, within the default [Bounds].
// Errors are *[DecodeError] or *[LimitError], or wrap an error of a [PythonUnmarshaler] or
// encoding.TextUnmarshaler. After an error v may contain a part of the value.
func Unmarshal(doc []byte, v any) error { return UnmarshalLimits(doc, v, Bounds{}) }

// UnmarshalLimits is like [Unmarshal], but with other limits.
func UnmarshalLimits(doc []byte, v any, limits Bounds) error {
	return unmarshal(doc, nil, v, limits, false)
}

func unmarshal(doc []byte, blobs Blobs, v any, limits Bounds, json bool) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return &DecodeError{Type: reflect.TypeOf(v), Reason: fmt.Sprintf("the target must be a pointer, not %T", v)}
	}
	d, err := newDecoder(doc, blobs, limits)
	if err != nil {
		return err
	}
	d.json = json
	if err := d.decode(target.Elem()); err != nil {
		return err
	}
	return d.finish()
}

// decoder stores the values that the scanner reads.
type decoder struct {
	scanner
	json    bool // the value comes from JSON, as for FromJSON
	ordered bool // a dict becomes a Dict if the target does not determine a type
}

func newDecoder(doc []byte, blobs Blobs, limits Bounds) (*decoder, error) {
	d := &decoder{scanner: scanner{data: doc, blobs: blobs, limits: limits.withDefaults()}}
	if int64(len(doc)) > d.limits.MaxBytes {
		return nil, &LimitError{Limit: "MaxBytes", Max: d.limits.MaxBytes}
	}
	if !d.skip(documentStart) {
		return nil, d.fail("the document does not start with %s", documentStart)
	}
	return d, nil
}

func (d *decoder) finish() error {
	if err := d.literal(documentEnd); err != nil {
		return err
	}
	if d.pos != len(d.data) {
		return d.fail("%d bytes after the end", len(d.data)-d.pos)
	}
	return nil
}

// decode reads the next value into v.
func (d *decoder) decode(v reflect.Value) error {
	start := d.pos
	n, err := d.next()
	if err != nil {
		return err
	}
	return d.assign(start, n, v)
}

func (d *decoder) mismatch(n node, v reflect.Value) error {
	what := "a Python " + string(n.kind)
	if n.kind == KindOpaque {
		o := n.rare.(Opaque)
		what = fmt.Sprintf("a Python %.100s, which has no Go form (%.100s)", o.Type, o.Repr)
		if o.Reason != "" {
			what += ": " + o.Reason
		}
	}
	return d.refused(what, v)
}

func (d *decoder) refused(what string, v reflect.Value) error {
	return d.unfit(v, "%s cannot be stored in %s", what, v.Type())
}

// unfit returns the error about a value that is not malformed, but does not fit the target v.
func (d *decoder) unfit(v reflect.Value, format string, args ...any) error {
	return &DecodeError{Offset: d.pos, Type: v.Type(), Reason: fmt.Sprintf(format, args...)}
}

// assign stores a value that begins at start and whose opening has been read.
func (d *decoder) assign(start int, n node, v reflect.Value) error {
	t := v.Type()
	switch t {
	case valueType, timeType, durationType, timedeltaType, bigIntType, bigRatType, opaqueType, dictType:
		if n.form && t != valueType {
			return d.assignForm(start, n, v)
		}
		return d.special(start, n, v)
	}
	if t.Kind() == reflect.Pointer {
		if n.kind == KindNone {
			v.SetZero()
			return nil
		}
		if v.IsNil() {
			v.Set(reflect.New(t.Elem()))
		}
		if done, err := d.custom(start, n, v); done || err != nil {
			return err
		}
		return d.assign(start, n, v.Elem())
	}
	if t.Kind() == reflect.Interface {
		if t.NumMethod() > 0 {
			return d.mismatch(n, v)
		}
		x, err := d.natural(n)
		if err != nil {
			return err
		}
		if x == nil {
			v.SetZero()
		} else {
			v.Set(reflect.ValueOf(x))
		}
		return nil
	}
	if t.Name() != "" && v.CanAddr() {
		if done, err := d.custom(start, n, v.Addr()); done || err != nil {
			return err
		}
	}
	if n.form {
		return d.assignForm(start, n, v)
	}
	if f, ok := jsonFloat(n); ok && d.json && v.CanFloat() {
		v.SetFloat(f)
		return nil
	}
	switch n.kind {
	case KindNone:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Map {
			return d.mismatch(n, v)
		}
		v.SetZero()
		return nil
	case KindList, KindTuple, KindSet, KindFrozenSet:
		return d.sequence(n, v)
	case KindDict:
		return d.dict(n, v)
	}
	return d.scalar(n, v)
}

// custom passes the value to a type that decodes itself.
func (d *decoder) custom(start int, n node, pointer reflect.Value) (bool, error) {
	if !pointer.CanInterface() {
		return false, nil
	}
	t := pointer.Type()
	if t.Implements(unmarshalerType) {
		value, err := d.value(start, n)
		if err != nil {
			return true, err
		}
		if err := pointer.Interface().(PythonUnmarshaler).UnmarshalPython(value); err != nil {
			return true, fmt.Errorf("state: UnmarshalPython of %s: %w", t.Elem(), err)
		}
		return true, nil
	}
	if e := t.Elem(); e == timeType || e == bigIntType || e == bigRatType || !t.Implements(textUnmarshaler) {
		return false, nil
	}
	text := n.str
	switch n.kind {
	case KindStr:
	case KindUUID, KindDecimal:
		x, err := d.form(n)
		if err != nil {
			return true, err
		}
		text = fmt.Sprint(x)
	default:
		return false, nil
	}
	if err := pointer.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
		return true, fmt.Errorf("state: UnmarshalText of %s: %w", t.Elem(), err)
	}
	return true, nil
}

// value reads to the end of a value and returns it as a separate document.
func (d *decoder) value(start int, n node) (Value, error) {
	deepest, opaque, depth := d.deepest, d.opaque, d.depth
	d.opaque = n.kind == KindOpaque
	d.deepest = d.depth
	switch {
	case n.floats() != nil:
		d.deepest++
	case n.container():
		depth-- // its opening has been read
	}
	if err := d.discard(n); err != nil {
		return Value{}, err
	}
	body := d.data[start:d.pos]
	doc := make([]byte, 0, len(documentStart)+len(body)+len(documentEnd))
	doc = append(append(append(doc, documentStart...), body...), documentEnd...)
	v := Value{doc: doc, kind: n.kind, opaque: d.opaque, depth: d.deepest - depth, blobs: named(body, d.blobs), json: d.json}
	v.other, _ = n.rare.(Opaque)
	d.deepest, d.opaque = max(deepest, d.deepest), opaque || d.opaque
	return v, nil
}

// discard reads to the end of a value.
func (d *decoder) discard(n node) error {
	item := func(int) error {
		n, err := d.next()
		if err != nil {
			return err
		}
		return d.discard(n)
	}
	if n.form {
		_, err := d.form(n)
		return err
	}
	switch n.kind {
	case KindList, KindTuple, KindSet, KindFrozenSet:
		if n.floats() != nil {
			return nil
		}
		return d.items(n, item)
	case KindDict:
		return d.pairs(n, func(_ int, n node) error { return d.discard(n) }, func() error { return item(0) })
	}
	return nil
}

// items calls read for each item of a container. read must read the item.
func (d *decoder) items(n node, read func(i int) error) error {
	if !d.skip("]") {
		for i := 0; ; i++ {
			if err := read(i); err != nil {
				return within(err, index(i))
			}
			if d.skip("]") {
				break
			}
			if err := d.literal(","); err != nil {
				return err
			}
		}
	}
	return d.leave(n)
}

func (d *decoder) leave(n node) error {
	d.depth--
	if n.tagged {
		return d.literal("}")
	}
	return nil
}

// pairs calls key and then value for each entry of a dict.
func (d *decoder) pairs(n node, key func(start int, n node) error, value func() error) error {
	open, between, next, end := "", ":", ",", "}"
	if n.tagged {
		open, between, next, end = "[", ",", "],[", "]]"
	}
	if n.tagged && d.skip("]") || !n.tagged && d.skip("}") {
		return d.leave(n)
	}
	if err := d.literal(open); err != nil {
		return err
	}
	for {
		start := d.pos
		if !n.tagged && (d.pos == len(d.data) || d.data[d.pos] != '"') {
			return d.fail("expected a key")
		}
		k, err := d.next()
		if err != nil {
			return err
		}
		if !n.tagged && k.str == "$" {
			return d.fail(`"$" must be the first key`)
		}
		if err := key(start, k); err != nil {
			return within(err, "[key]")
		}
		stop := d.pos
		if err := d.literal(between); err != nil {
			return err
		}
		if err := value(); err != nil {
			return within(err, keyStep(d.data[start:stop]))
		}
		if d.skip(end) {
			break
		}
		if err := d.literal(next); err != nil {
			return err
		}
	}
	return d.leave(n)
}
