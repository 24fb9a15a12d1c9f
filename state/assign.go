package state

import (
	"fmt"
	"math"
	"math/big"
	"reflect"
	"time"
)

// special stores a value in a target for whose type a special rule applies.
func (d *decoder) special(start int, n node, v reflect.Value) error {
	switch into := v.Addr().Interface().(type) {
	case *Value:
		value, err := d.value(start, n)
		if err != nil {
			return err
		}
		*into = value
		return nil
	case *Opaque:
		if n.kind == KindOpaque {
			*into = n.rare.(Opaque)
			return nil
		}
	case *time.Time:
		if n.kind == KindDatetime {
			*into = n.rare.(time.Time)
			return nil
		}
		if n.kind == KindStr {
			t, err := time.Parse(time.RFC3339, n.str)
			if err != nil {
				return d.refused(fmt.Sprintf("the Python str %.40q, which is no time in RFC 3339,", n.str), v)
			}
			*into = t
			return nil
		}
	case *time.Duration:
		if n.kind == KindTimedelta {
			delta, ok := n.rare.(Timedelta).Duration()
			if !ok {
				return d.refused("a Python timedelta beyond 292 years", v)
			}
			*into = delta
			return nil
		}
	case *Timedelta:
		if n.kind == KindTimedelta {
			*into = n.rare.(Timedelta)
			return nil
		}
	case *big.Int:
		if n.kind == KindInt {
			if n.big() != nil {
				into.Set(n.big())
			} else {
				into.SetInt64(n.int)
			}
			return nil
		}
	case *Dict:
		if n.kind == KindDict {
			items, err := d.dictOf(n)
			*into = items
			return err
		}
		if n.kind == KindNone {
			*into = nil
			return nil
		}
	}
	return d.mismatch(n, v)
}

// scalar stores a value that is not a container.
func (d *decoder) scalar(n node, v reflect.Value) error {
	ok := false
	switch v.Kind() {
	case reflect.Bool:
		if ok = n.kind == KindBool; ok {
			v.SetBool(n.truth)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if n.kind != KindInt {
			break
		}
		if n.big() != nil || v.OverflowInt(n.int) {
			return d.tooLarge(n, v)
		}
		v.SetInt(n.int)
		ok = true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if n.kind != KindInt {
			break
		}
		u := uint64(n.int)
		if n.big() != nil {
			u = n.big().Uint64()
		}
		if n.big() != nil && !n.big().IsUint64() || n.big() == nil && n.int < 0 || v.OverflowUint(u) {
			return d.tooLarge(n, v)
		}
		v.SetUint(u)
		ok = true
	case reflect.Float32, reflect.Float64:
		switch n.kind {
		case KindFloat:
			if v.OverflowFloat(n.float) {
				return d.tooLarge(n, v)
			}
			v.SetFloat(n.float)
			ok = true
		case KindInt:
			// 2^63 rounds up to a value that int64 cannot hold.
			f := float64(n.int)
			if v.Kind() == reflect.Float32 {
				f = float64(float32(n.int))
			}
			if n.big() != nil || f >= math.MaxInt64 || int64(f) != n.int {
				return d.tooLarge(n, v)
			}
			v.SetFloat(f)
			ok = true
		}
	case reflect.String:
		t := v.Type() // a form, such as Decimal, is a string only in Go
		if ok = n.kind == KindStr && (t == stringType || !formTypes[t]); ok {
			v.SetString(n.str)
		}
	case reflect.Slice, reflect.Array:
		ok = !formTypes[v.Type()] && setBytes(n, v)
	}
	if !ok {
		return d.mismatch(n, v)
	}
	return nil
}

// setBytes sets a slice or an array of bytes. It reports whether the node has the array's
// length.
func setBytes(n node, v reflect.Value) bool {
	b, is := n.rare.([]byte)
	if !is || v.Type().Elem().Kind() != reflect.Uint8 {
		return false
	}
	if v.Kind() == reflect.Slice {
		v.SetBytes(b)
		return true
	}
	if len(b) != v.Len() {
		return false
	}
	for i, c := range b {
		v.Index(i).SetUint(uint64(c))
	}
	return true
}

// tooLarge returns the error for a number that the type cannot represent exactly.
func (d *decoder) tooLarge(n node, v reflect.Value) error {
	return d.unfit(v, "a Python %s that %s cannot hold", n.kind, v.Type())
}

// sequence stores a list, tuple or set.
func (d *decoder) sequence(n node, v reflect.Value) error {
	t := v.Type()
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		if n.floats() != nil && t.Elem() == float64Type {
			v.Set(reflect.ValueOf(n.floats()).Convert(t))
			return nil
		}
		if n.floats() == nil {
			switch into := v.Addr().Interface().(type) {
			case *[]int:
				return decodeInts(d, n, into)
			case *[]int64:
				return decodeInts(d, n, into)
			case *[]string:
				return d.strings(n, into)
			}
		}
		v.Set(reflect.MakeSlice(t, 0, len(n.floats())))
		return d.each(n, func(i int) (reflect.Value, error) {
			v.Grow(1)
			v.SetLen(i + 1)
			return v.Index(i), nil
		}, nil)
	case t.Kind() == reflect.Array && t.Elem().Kind() != reflect.Uint8 && n.kind != KindSet && n.kind != KindFrozenSet:
		length := 0
		err := d.each(n, func(i int) (reflect.Value, error) {
			if length++; length > v.Len() {
				return reflect.Value{}, d.unfit(v, "a Python %s with more items than %s has", n.kind, t)
			}
			return v.Index(i), nil
		}, nil)
		if err == nil && length != v.Len() {
			err = d.unfit(v, "a Python %s of %d items cannot be stored in %s", n.kind, length, t)
		}
		return err
	case t.Kind() == reflect.Map && t.Elem() == emptyType && n.kind != KindList && n.kind != KindTuple:
		v.Set(reflect.MakeMap(t))
		return d.each(n, func(int) (reflect.Value, error) {
			return reflect.New(t.Key()).Elem(), nil
		}, func(k reflect.Value) error {
			return d.put(v, k, reflect.Zero(emptyType))
		})
	}
	return d.mismatch(n, v)
}

// decodeInts decodes long lists of these types without reflection. Programs send such lists often,
// and decoding without reflection is faster.
func decodeInts[T int | int64](d *decoder, n node, into *[]T) error {
	list := []T{}
	err := d.items(n, func(int) error {
		x, err := d.next()
		if err != nil {
			return err
		}
		if x.kind != KindInt || x.rare != nil || int64(T(x.int)) != x.int {
			return d.scalar(x, reflect.ValueOf(new(T)).Elem())
		}
		list = append(list, T(x.int))
		return nil
	})
	*into = list
	return err
}

func (d *decoder) strings(n node, into *[]string) error {
	list := []string{}
	err := d.items(n, func(int) error {
		x, err := d.next()
		if err == nil && x.kind != KindStr {
			err = d.mismatch(x, reflect.ValueOf(new(string)).Elem())
		}
		list = append(list, x.str)
		return err
	})
	*into = list
	return err
}

// each decodes every item of a container into the value that target returns for that item.
func (d *decoder) each(n node, target func(i int) (reflect.Value, error), done func(reflect.Value) error) error {
	one := func(i int, read func(v reflect.Value) error) error {
		v, err := target(i)
		if err == nil {
			err = read(v)
		}
		if err == nil && done != nil {
			err = done(v)
		}
		return err
	}
	for i, f := range n.floats() {
		if err := one(i, func(v reflect.Value) error { return d.assign(d.pos, node{kind: KindFloat, float: f}, v) }); err != nil {
			return within(err, index(i))
		}
	}
	if n.floats() != nil {
		return nil
	}
	return d.items(n, func(i int) error { return one(i, d.decode) })
}

// put stores one entry of a map.
func (d *decoder) put(m, k, v reflect.Value) error {
	if !k.Comparable() {
		return d.unfit(m, "a key that Go cannot compare: decode into Dict")
	}
	if m.MapIndex(k).IsValid() {
		return d.fail("a key that is there twice")
	}
	m.SetMapIndex(k, v)
	return nil
}

func (d *decoder) dict(n node, v reflect.Value) error {
	t := v.Type()
	switch t.Kind() {
	case reflect.Map:
		v.Set(reflect.MakeMap(t))
		var k reflect.Value
		return d.pairs(n, func(start int, n node) error {
			k = reflect.New(t.Key()).Elem()
			return d.assign(start, n, k)
		}, func() error {
			x := reflect.New(t.Elem()).Elem()
			if err := d.decode(x); err != nil {
				return err
			}
			return d.put(v, k, x)
		})
	case reflect.Struct:
		return d.structure(n, v)
	}
	return d.mismatch(n, v)
}

func (d *decoder) structure(n node, v reflect.Value) error {
	f := fieldsOf(v.Type())
	if f.err != "" {
		return d.unfit(v, "%s: %s", v.Type(), f.err)
	}
	const folded, exact = 1, 2 // how the field was found: by its key in another case, or exactly
	seen := make([]int, len(f.list))
	into := -1
	return d.pairs(n, func(start int, n node) error {
		if n.kind != KindStr {
			return d.unfit(v, "a Python %s as a key cannot be stored in %s", n.kind, v.Type())
		}
		at, same, known := f.find(n.str)
		how := folded
		if same {
			how = exact
		}
		switch into = at; {
		case !known, seen[at] > how: // the key in the same case takes precedence
			into = -1
			return nil
		case seen[at] == how && same:
			return d.fail("a key that is there twice")
		case seen[at] == how:
			return d.unfit(v, "two keys that differ only in case from the field %s of %s", f.list[at].name, v.Type())
		}
		seen[at] = how
		return nil
	}, func() error {
		if into < 0 {
			n, err := d.next()
			if err != nil {
				return err
			}
			return d.discard(n)
		}
		x, ok := settable(v, f.list[into].index)
		if !ok {
			return d.unfit(v, "%s has its field in a nil pointer to an unexported type", v.Type())
		}
		return d.decode(x)
	})
}

// natural returns a value as the Go type in the table of the package comment.
func (d *decoder) natural(n node) (any, error) {
	if n.form {
		return d.form(n)
	}
	switch n.kind {
	case KindBool:
		return n.truth, nil
	case KindInt:
		if n.big() != nil {
			return n.big(), nil
		}
		return n.int, nil
	case KindFloat:
		return n.float, nil
	case KindStr:
		return n.str, nil
	case KindBytes, KindByteArray, KindDatetime, KindOpaque:
		return n.rare, nil
	case KindTimedelta:
		if delta, ok := n.rare.(Timedelta).Duration(); ok {
			return delta, nil
		}
		return n.rare, nil
	case KindList:
		return d.list(n)
	case KindTuple:
		items, err := d.list(n)
		return Tuple(items), err
	case KindSet:
		items, err := d.list(n)
		return Set(items), err
	case KindFrozenSet:
		items, err := d.list(n)
		return FrozenSet(items), err
	case KindDict:
		return d.anyDict(n)
	}
	return nil, nil // None
}

func (d *decoder) any() (any, error) {
	n, err := d.next()
	if err != nil {
		return nil, err
	}
	return d.natural(n)
}

func (d *decoder) list(n node) ([]any, error) {
	items := make([]any, 0, len(n.floats()))
	for _, f := range n.floats() {
		items = append(items, f)
	}
	if n.floats() != nil {
		return items, nil
	}
	err := d.items(n, func(int) error {
		x, err := d.any()
		items = append(items, x)
		return err
	})
	return items, err
}

// anyDict returns a map if all keys are strings, and a Dict otherwise.
func (d *decoder) anyDict(n node) (any, error) {
	if d.ordered {
		return d.dictOf(n)
	}
	if n.tagged {
		items, err := d.dictOf(n)
		if err != nil {
			return nil, err
		}
		m := make(map[string]any, len(items))
		for _, item := range items {
			k, ok := item.Key.(string)
			if !ok {
				return items, nil
			}
			m[k] = item.Value
		}
		return m, nil
	}
	m := map[string]any{}
	var k string
	return m, d.pairs(n, func(_ int, n node) error {
		k = n.str
		if _, ok := m[k]; ok {
			return d.fail("a key that is there twice")
		}
		return nil
	}, func() (err error) {
		m[k], err = d.any()
		return err
	})
}

func (d *decoder) dictOf(n node) (Dict, error) {
	items, seen := Dict{}, map[string]struct{}{}
	var k any
	err := d.pairs(n, func(start int, n node) (err error) {
		if k, err = d.natural(n); err != nil {
			return err
		}
		text := string(d.data[start:d.pos])
		if n.kind == KindStr { // several encodings can mean the same string
			text = `"` + n.str
		}
		if _, ok := seen[text]; ok {
			return d.fail("a key that is there twice")
		}
		seen[text] = struct{}{}
		return nil
	}, func() error {
		x, err := d.any()
		items = append(items, Item{k, x})
		return err
	})
	return items, err
}
