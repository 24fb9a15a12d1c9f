package state

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
)

// Column is a column of a [Table], or the values of a [Series] or an [Index]. [ColumnOf]
// converts a slice to a Column, and [Values] converts it back.
type Column struct {
	// Name is the label, usually a string. Nil means no label.
	Name any
	// Dtype is the pandas name: "float64", "Int64", "str", "object", "category",
	// "datetime64[ns, Europe/Berlin]", "range".
	Dtype string
	// Data contains the values. For a category it contains the codes. For times with a zone it
	// contains the times in UTC. For the dtype str it contains strings, and nil for missing values.
	Data Array
	// Pytz has the meaning of [Timestamp].Pytz, for a column of times with a zone.
	Pytz bool
	// Mask is true for each value that is missing. It is nil for dtypes without a mask.
	Mask []bool
	// Categories contains the values for the codes of a category. The code -1 means a missing
	// value.
	Categories *Column
	Ordered    bool
	// Range is set for the default index of a table, and then replaces Data. It is nil otherwise.
	Range *Range
	// Freq is the pandas name of the step of an index of times, such as "D" or "15min". It is
	// empty for other columns. Clear it if you change the times so that they no longer have
	// this step.
	Freq string
}

type columnPayload struct {
	Name       any            `py:"name"`
	Freq       string         `py:"freq,omitempty"`
	Dtype      string         `py:"dtype"`
	Data       Array          `py:"data,omitempty"`
	Pytz       bool           `py:"pytz,omitempty"`
	Mask       []byte         `py:"mask,omitempty"`
	Categories *columnPayload `py:"categories,omitempty"`
	Ordered    bool           `py:"ordered,omitempty"`
	Range      *Range         `py:"range,omitempty"`
}

func (c Column) payload() (columnPayload, error) {
	if _, err := c.check(DefaultMaxElements); err != nil {
		return columnPayload{}, fmt.Errorf("column %.40v: %w", c.Name, err)
	}
	p := columnPayload{Name: c.Name, Freq: c.Freq, Dtype: c.Dtype, Data: c.Data, Pytz: c.Pytz, Ordered: c.Ordered, Range: c.Range}
	if c.Mask != nil {
		p.Mask = raw(c.Mask)
	}
	if c.Categories != nil {
		categories, err := c.Categories.payload()
		if err != nil {
			return p, err
		}
		p.Categories = &categories
	}
	return p, nil
}

func (p columnPayload) column() Column {
	c := Column{Name: p.Name, Freq: p.Freq, Dtype: p.Dtype, Data: p.Data, Pytz: p.Pytz, Ordered: p.Ordered, Range: p.Range}
	if p.Mask != nil {
		c.Mask = make([]bool, len(p.Mask))
		for i, missing := range p.Mask {
			c.Mask[i] = missing != 0
		}
	}
	if p.Categories != nil {
		categories := p.Categories.column()
		c.Categories = &categories
	}
	return c
}

const (
	categoryDtype = "category"
	rangeDtype    = "range"
	stringDtype   = "str"
)

// check returns the length of a column, or an error if the column is not valid.
func (c Column) check(limit int) (int, error) {
	if c.Dtype == rangeDtype {
		if c.Range == nil || c.Mask != nil || c.Categories != nil {
			return 0, errors.New("a range without its numbers")
		}
		if n := c.Range.Len(); n <= limit {
			return n, nil
		}
		return 0, &LimitError{Limit: "MaxElements", Max: int64(limit)}
	}
	t, n, err := c.Data.check(limit)
	switch {
	case err != nil:
		return 0, err
	case len(c.Data.Shape) != 1 || c.Range != nil:
		return 0, fmt.Errorf("a column of the shape %v", c.Data.Shape)
	case c.Mask != nil && len(c.Mask) != n:
		return 0, fmt.Errorf("a column of %d values with a mask of %d", n, len(c.Mask))
	case (c.Categories != nil) != (c.Dtype == categoryDtype):
		return 0, fmt.Errorf("a column whose dtype %.40q does not match its categories", c.Dtype)
	case c.Categories == nil:
		return n, nil
	case c.Categories.Categories != nil || t.kind != 'i':
		return 0, errors.New("categories whose codes are not integers, or that have categories themselves")
	}
	categories, err := c.Categories.check(limit)
	if err != nil {
		return 0, err
	}
	for i := range n {
		if code := t.int(c.Data.Data[i*t.size:]); code < -1 || code >= int64(categories) {
			return 0, fmt.Errorf("the code %d, where there are %d categories", code, categories)
		}
	}
	return n, nil
}

// Len returns the number of values.
func (c Column) Len() int {
	if c.Range != nil {
		return c.Range.Len()
	}
	return c.Data.Len()
}

// At returns the value at a position. Its type is one of the types of [Array.At]. A missing value
// is [NA], or nil in a column of strings.
func (c Column) At(i int) (any, error) {
	n, err := c.check(math.MaxInt)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if i < 0 || i >= n {
		return nil, fmt.Errorf("state: value %d of a column of %d", i, n)
	}
	at, err := c.reader()
	if err != nil {
		return nil, err
	}
	return at(i)
}

// reader returns a function that reads the values of a valid column.
func (c Column) reader() (func(i int) (any, error), error) {
	if c.Range != nil {
		return func(i int) (any, error) { return c.Range.Start + int64(i)*c.Range.Step, nil }, nil
	}
	t, err := parseDtype(c.Data.Dtype)
	if err != nil {
		return nil, err
	}
	if c.Categories != nil {
		category, err := c.Categories.reader()
		return func(i int) (any, error) {
			if code := int(t.int(c.Data.Data[i*t.size:])); code >= 0 {
				return category(code)
			}
			return NA, nil
		}, err
	}
	location := Naive
	if _, zone, ok := strings.Cut(strings.TrimSuffix(c.Dtype, "]"), ", "); ok && t.kind == 'M' {
		if err = checkZone(zone); err == nil {
			location, err = zoneLocation(zone, loadZone)
		}
	}
	return func(i int) (any, error) {
		if c.Mask != nil && c.Mask[i] {
			return NA, nil
		}
		x, err := c.Data.at(t, i)
		if at, ok := x.(time.Time); ok && location != Naive {
			return at.In(location), err
		}
		return x, err
	}, err
}

// Values returns the values of a column as a type that can represent each value exactly. If a value
// is missing, T must be a pointer type.
func Values[T any](c Column) ([]T, error) {
	n, err := c.check(DefaultMaxElements)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if c.Range == nil && c.Categories == nil && c.Mask == nil && reflect.TypeFor[T]() != timeType {
		return Elements[T](c.Data)
	}
	out := make([]T, n)
	err = c.each(func(i int) reflect.Value { return reflect.ValueOf(&out[i]).Elem() })
	return out, err
}

// each stores every value of a valid column in the value that target returns.
func (c Column) each(target func(i int) reflect.Value) error {
	at, err := c.reader()
	if err != nil {
		return err
	}
	d := &decoder{}
	for i := range c.Len() {
		x, err := at(i)
		if err == nil {
			err = d.fitElement(0, node{kind: KindSeries}, x, target(i))
		}
		if err != nil {
			return within(err, index(i))
		}
	}
	return nil
}

// ColumnOf copies a slice into a column. Numbers, bools, time.Time and time.Duration become columns
// of the matching dtype. Strings become a column of dtype str. Pointers to numbers, bools and
// strings become columns in which nil is a missing value. Other types become a column of objects,
// each of them encoded separately.
func ColumnOf[T any](name any, values []T) (Column, error) {
	return columnOf(name, reflect.ValueOf(values))
}

func columnOf(name any, values reflect.Value) (Column, error) {
	switch values.Type().Elem() {
	case timeType:
		return timeColumn(name, values.Interface().([]time.Time))
	case durationType:
		ns := make([]int64, values.Len())
		for i := range ns {
			ns[i] = values.Index(i).Int()
		}
		return Column{Name: name, Dtype: "timedelta64[ns]", Data: Array{Dtype: "<m8[ns]", Shape: []int{len(ns)}, Data: raw(ns)}}, nil
	}
	element := values.Type().Elem()
	optional := element.Kind() == reflect.Pointer
	if optional {
		element = element.Elem()
	}
	number := numberColumns[element.Kind()]
	if element.PkgPath() != "" { // the type may have its own form
		return objectColumn(name, "object", values), nil
	}
	if element.Kind() == reflect.String {
		return objectColumn(name, stringDtype, values), nil
	}
	// pandas has no dtype of complex numbers that allows missing values.
	if number == nil || optional && strings.HasPrefix(element.Kind().String(), "complex") {
		return objectColumn(name, "object", values), nil
	}
	var mask []bool
	if optional {
		plain := reflect.MakeSlice(reflect.SliceOf(element), values.Len(), values.Len())
		mask = make([]bool, values.Len())
		for i := range mask {
			if mask[i] = values.Index(i).IsNil(); !mask[i] {
				plain.Index(i).Set(values.Index(i).Elem())
			}
		}
		values = plain
	}
	data := number(values)
	c := Column{Name: name, Dtype: dtypeName(data.Dtype), Data: data, Mask: mask}
	if optional {
		c.Dtype = maskedName(c.Dtype)
	}
	return c, nil
}

var numberColumns = map[reflect.Kind]func(reflect.Value) Array{
	reflect.Bool: numbers[bool], reflect.Int: numbers[int], reflect.Int8: numbers[int8], reflect.Int16: numbers[int16],
	reflect.Int32: numbers[int32], reflect.Int64: numbers[int64], reflect.Uint: numbers[uint], reflect.Uint8: numbers[uint8],
	reflect.Uint16: numbers[uint16], reflect.Uint32: numbers[uint32], reflect.Uint64: numbers[uint64],
	reflect.Float32: numbers[float32], reflect.Float64: numbers[float64], reflect.Complex64: numbers[complex64], reflect.Complex128: numbers[complex128],
}

func numbers[T Number](v reflect.Value) Array {
	data := v.Interface().([]T)
	return Array{Dtype: numberDtype[T](), Shape: []int{len(data)}, Data: raw(data)}
}

// dtypeName returns numpy's long name of a number's dtype.
func dtypeName(text string) string {
	t, err := parseDtype(text)
	if err != nil {
		return text
	}
	switch t.kind {
	case 'b':
		return "bool"
	case 'i':
		return fmt.Sprintf("int%d", 8*t.size)
	case 'u':
		return fmt.Sprintf("uint%d", 8*t.size)
	case 'c':
		return fmt.Sprintf("complex%d", 8*t.size)
	}
	return fmt.Sprintf("float%d", 8*t.size)
}

// maskedName returns the name of the pandas dtype that allows missing values.
func maskedName(name string) string {
	switch {
	case name == "bool":
		return "boolean"
	case strings.HasPrefix(name, "uint"):
		return "UInt" + name[4:]
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

func objectColumn(name any, dtype string, values reflect.Value) Column {
	objects := make([]any, values.Len())
	for i := range objects {
		if x := values.Index(i); x.Kind() != reflect.Pointer {
			objects[i] = x.Interface()
		} else if !x.IsNil() {
			objects[i] = x.Elem().Interface()
		}
	}
	return Column{Name: name, Dtype: dtype, Data: Array{Dtype: objectDtype, Shape: []int{len(objects)}, Objects: objects}}
}

// timeColumn returns a column of times. Their unit is nanoseconds if all times are in the years
// 1678 to 2261, which nanoseconds can represent, and microseconds otherwise. The zone of the column
// is the zone of the first time.
func timeColumn(name any, times []time.Time) (Column, error) {
	unit, zone := "ns", ""
	for i, t := range times {
		if i == 0 {
			zone = zoneText(t)
		} else if (zone == "") != (t.Location() == Naive) {
			return Column{}, fmt.Errorf("state: column %.40v: times with and without a zone", name)
		}
		if t.Year() < 1678 || t.Year() > 2261 {
			unit = "us"
		}
	}
	data := make([]int64, len(times))
	for i, t := range times {
		if year := t.Year(); year < 1 || year > 9999 {
			return Column{}, fmt.Errorf("state: column %.40v: a time in year %d: Python has the years 1 to 9999", name, year)
		}
		if data[i] = t.UnixMicro(); unit == "ns" {
			data[i] = t.UnixNano()
		}
	}
	dtype := fmt.Sprintf("datetime64[%s]", unit)
	if zone != "" {
		dtype = fmt.Sprintf("datetime64[%s, %s]", unit, zone)
	}
	return Column{Name: name, Dtype: dtype, Data: Array{Dtype: "<M8[" + unit + "]", Shape: []int{len(data)}, Data: raw(data)}}, nil
}
