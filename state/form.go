package state

import (
	"fmt"
	"math"
	"math/big"
	"reflect"
	"time"
)

// form is implemented by the types whose document is {"$":kind,"value":…}. The value, called the
// payload, consists of simpler values.
type form interface {
	form() (Kind, any, error)
}

// forms contains the readers of forms by kind. A reader decodes the payload and checks the
// value.
var forms map[Kind]func(*decoder) (any, error)

// formTypes contains the types that implement form.
var formTypes = map[reflect.Type]bool{}

func init() { // set here, because a literal would refer to itself through the readers
	forms = map[Kind]func(*decoder) (any, error){
		KindComplex:   formOf(complexOf),
		KindFraction:  formOf(ratOf),
		KindDecimal:   formOf(decimalOf),
		KindDate:      formOf(dateOf),
		KindTime:      formOf(timeOfDayOf),
		KindTimestamp: formOf(timestampOf),
		KindUUID:      formOf(ParseUUID),
		KindPath:      formOf(func(p pathPayload) (Path, error) { return Path(p), nil }),
		KindRange:     formOf(rangeOf),
		KindSlice:     formOf(sliceOf),
		KindDeque:     formOf(dequeOf),
		KindSingleton: formOf(singletonOf),
		KindScalar:    formOf(scalarOf),
		KindArray:     (*decoder).array,
		KindTable:     (*decoder).table,
		KindSeries:    (*decoder).series,
		KindIndex:     (*decoder).index,
		KindImage:     (*decoder).image,
	}
	for kind := range instanceKinds {
		forms[kind] = func(d *decoder) (any, error) { return d.instance(kind) }
	}
	for _, x := range []form{
		Decimal(""), Date{}, TimeOfDay{}, Timestamp{}, UUID{}, Path{}, Range{}, Slice{}, Deque{}, Singleton(""),
		Scalar{}, Array{}, Table{}, Series{}, Index{}, Image{}, Instance{},
	} {
		formTypes[reflect.TypeOf(x)] = true
	}
}

// formOf reads a payload as a P and builds the value from it.
func formOf[P, T any](build func(P) (T, error)) func(*decoder) (any, error) {
	return func(d *decoder) (any, error) {
		var p P
		if err := d.decode(reflect.ValueOf(&p).Elem()); err != nil {
			return nil, err
		}
		x, err := build(p)
		if err != nil {
			return nil, d.fail("%v", err)
		}
		return x, nil
	}
}

// unhashableKinds lists the kinds whose values cannot be dict keys in Python, although their
// payload could be a dict key.
var unhashableKinds = map[Kind]bool{
	KindSlice: true, KindDeque: true, KindArray: true, KindTable: true, KindSeries: true, KindIndex: true, KindImage: true,
	KindDefaultDict: true,
}

// form encodes a kind with its payload.
func (e *encoder) form(kind Kind, payload any) error {
	if unhashableKinds[kind] {
		if err := e.unhashable(kind); err != nil {
			return err
		}
	}
	// For Python, the parts of the payload are not separate values.
	frozen := e.frozen
	e.frozen = 0
	defer func() { e.frozen = frozen }()
	e.text(`{"$":"`)
	e.text(string(kind))
	e.text(`","value":`)
	if err := e.any(payload); err != nil {
		return err
	}
	e.text(`}`)
	return nil
}

// form reads the payload of a value and the end of its object.
func (d *decoder) form(n node) (any, error) {
	x, err := forms[n.kind](d)
	if err != nil {
		return nil, err
	}
	return x, d.literal("}")
}

// assignForm stores in v a value whose type implements form.
func (d *decoder) assignForm(start int, n node, v reflect.Value) error {
	if instanceKinds[n.kind] && v.Type() != instanceType {
		// Decode it as the base that the class adds to.
		if _, err := d.instanceHead(); err != nil {
			return err
		}
		if err := d.decode(v); err != nil {
			return err
		}
		if err := d.instanceEnd(); err != nil {
			return err
		}
		return d.literal("}")
	}
	x, err := d.form(n)
	if err != nil {
		return err
	}
	return d.fit(start, n, x, v)
}

// fit stores a decoded value in v if nothing is lost.
func (d *decoder) fit(start int, n node, x any, v reflect.Value) error {
	if from := reflect.ValueOf(x); from.IsValid() && from.Type().AssignableTo(v.Type()) {
		v.Set(from)
		return nil
	}
	switch x := x.(type) {
	case *big.Rat:
		if v.Type() == bigRatType {
			v.Addr().Interface().(*big.Rat).Set(x)
			return nil
		}
	case complex128:
		if v.CanComplex() && !v.OverflowComplex(x) {
			v.SetComplex(x)
			return nil
		}
	case Timestamp:
		if v.Type() == timeType {
			v.Set(reflect.ValueOf(x.Time))
			return nil
		}
	case Scalar:
		element, err := x.Value()
		if err != nil {
			return d.fail("%v", err)
		}
		return d.fitElement(start, n, element, v)
	case Array:
		return d.fitArray(start, n, x, v)
	}
	return d.mismatch(n, v)
}

// fitElement stores an element of an array as the Python scalar of its dtype.
func (d *decoder) fitElement(start int, n node, x any, v reflect.Value) error {
	if v.Kind() == reflect.Interface && v.NumMethod() == 0 {
		v.Set(reflect.ValueOf(&x).Elem())
		return nil
	}
	if v.Kind() == reflect.Pointer {
		if x == nil || x == NA || x == NaT {
			v.SetZero()
			return nil
		}
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return d.fitElement(start, n, x, v.Elem())
	}
	as := node{}
	switch x := x.(type) {
	case nil:
		as.kind = KindNone
	case bool:
		as.kind, as.truth = KindBool, x
	case int64:
		as.kind, as.int = KindInt, x
	case uint64:
		as.kind = KindInt
		if x > math.MaxInt64 {
			as.rare = new(big.Int).SetUint64(x)
		} else {
			as.int = int64(x)
		}
	case float64:
		as.kind, as.float = KindFloat, x
	case string:
		as.kind, as.str = KindStr, x
	case []byte:
		as.kind, as.rare = KindBytes, x
	case time.Time:
		as.kind, as.rare = KindDatetime, x
	case time.Duration, complex128:
		if from := reflect.ValueOf(x); from.Type().AssignableTo(v.Type()) {
			v.Set(from)
			return nil
		}
		return d.fit(start, n, x, v)
	default:
		if from := reflect.ValueOf(x); from.Type().AssignableTo(v.Type()) {
			v.Set(from)
			return nil
		}
		return d.refused(fmt.Sprintf("a Python %s with %.100v in it", n.kind, x), v)
	}
	return d.assign(start, as, v)
}
