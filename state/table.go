package state

import (
	"bytes"
	"fmt"
	"reflect"
)

// Table is a pandas DataFrame: columns in order, each with a buffer that is transferred as a
// whole. [TableOf] converts structs to a Table, and [Rows] converts it back.
type Table struct {
	Columns []Column
	// Index contains the labels of the rows. The zero Column means 0, 1, 2 and so on.
	Index Column
	// Label is the name of the columns' index, usually nil.
	Label any
	// Labels is the index of the columns. It is set if that index has another dtype, such as "range",
	// than pandas would derive from the names of the columns. Nil means that pandas derives the index
	// from these names.
	// Labels has no effect if its values differ from the names of Columns.
	Labels *Column
}

// Series is a pandas Series.
type Series struct {
	Column
	// Index contains the labels of the values. The zero Column means 0, 1, 2 and so on.
	Index Column
}

// Index is a pandas Index, without levels.
type Index struct{ Column }

type tablePayload struct {
	Columns []columnPayload `py:"columns"`
	Index   columnPayload   `py:"index"`
	Label   any             `py:"label"`
	Labels  *columnPayload  `py:"labels,omitempty"` // the names of the columns; if it is set, Columns contains no names
}

type seriesPayload struct {
	Values columnPayload `py:"values"`
	Index  columnPayload `py:"index"`
}

// orCounted returns index. If index has no dtype and no range, orCounted returns an index that
// counts the rows from 0.
func orCounted(index Column, rows int) Column {
	if index.Dtype == "" && index.Range == nil {
		return Column{Name: index.Name, Dtype: rangeDtype, Range: &Range{0, int64(rows), 1}}
	}
	return index
}

// Len returns the number of rows.
func (t Table) Len() int {
	if len(t.Columns) > 0 {
		return t.Columns[0].Len()
	}
	return t.Index.Len()
}

// Column returns a column by its name.
func (t Table) Column(name any) (Column, bool) {
	for _, c := range t.Columns {
		if reflect.DeepEqual(c.Name, name) {
			return c, true
		}
	}
	return Column{}, false
}

func (t Table) form() (Kind, any, error) {
	rows := t.Len()
	index, err := orCounted(t.Index, rows).payload()
	p := tablePayload{Columns: make([]columnPayload, len(t.Columns)), Index: index, Label: t.Label}
	if err != nil {
		return "", nil, err
	}
	for i, c := range t.Columns {
		if p.Columns[i], err = c.payload(); err != nil {
			return "", nil, err
		}
	}
	if p.Labels, err = t.labels(); err != nil {
		return "", nil, err
	}
	if p.Labels != nil {
		for i := range p.Columns {
			p.Columns[i].Name = nil
		}
	}
	return KindTable, p, p.check(rows)
}

// labels returns the payload of t.Labels. It returns nil if Labels is nil or if the values of
// Labels differ from the names of the columns.
func (t Table) labels() (*columnPayload, error) {
	if t.Labels == nil || t.Labels.Len() != len(t.Columns) {
		return nil, nil
	}
	labels := *t.Labels
	labels.Name = nil // Label contains the name
	p, err := labels.payload()
	if err != nil {
		return nil, err
	}
	names, err := labels.names()
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		is, err := Marshal(name)
		if err != nil {
			return nil, err
		}
		if want, err := Marshal(t.Columns[i].Name); err != nil || !bytes.Equal(is, want) {
			return nil, err
		}
	}
	return &p, nil
}

// names returns the values of a valid column, for use as the names of other columns.
func (c Column) names() ([]any, error) {
	at, err := c.reader()
	if err != nil {
		return nil, err
	}
	names := make([]any, c.Len())
	for i := range names {
		if names[i], err = at(i); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func (p tablePayload) check(rows int) error {
	for _, c := range append(p.Columns[:len(p.Columns):len(p.Columns)], p.Index) {
		if n := c.column().Len(); n != rows {
			return fmt.Errorf("a table of %d rows with a column or index of %d values", rows, n)
		}
	}
	return nil
}

func (s Series) form() (Kind, any, error) {
	values, err := s.payload()
	if err != nil {
		return "", nil, err
	}
	index, err := orCounted(s.Index, s.Len()).payload()
	if err == nil && index.column().Len() != s.Len() {
		err = fmt.Errorf("a series of %d values with an index of %d", s.Len(), index.column().Len())
	}
	return KindSeries, seriesPayload{values, index}, err
}

func (x Index) form() (Kind, any, error) {
	p, err := x.payload()
	return KindIndex, p, err
}

// columns checks decoded columns and their index.
func (d *decoder) columns(payloads []columnPayload, index *columnPayload) ([]Column, error) {
	columns := make([]Column, len(payloads))
	for i, p := range payloads {
		columns[i] = p.column()
		n, err := columns[i].check(d.limits.MaxElements)
		if err != nil {
			return nil, d.wrong(err)
		}
		if index != nil && n != index.column().Len() {
			return nil, d.fail("a column of %d values with an index of %d", n, index.column().Len())
		}
	}
	return columns, nil
}

func (d *decoder) table() (any, error) {
	var p tablePayload
	if err := d.decode(reflect.ValueOf(&p).Elem()); err != nil {
		return nil, err
	}
	index, err := d.columns([]columnPayload{p.Index}, nil)
	if err != nil {
		return nil, err
	}
	columns, err := d.columns(p.Columns, &p.Index)
	if err != nil {
		return nil, err
	}
	t := Table{Columns: columns, Index: index[0], Label: p.Label}
	if p.Labels == nil {
		return t, nil
	}
	labels, err := d.columns([]columnPayload{*p.Labels}, nil)
	if err != nil {
		return nil, err
	}
	t.Labels = &labels[0]
	if n := t.Labels.Len(); n != len(columns) {
		return nil, d.fail("a table of %d columns with labels for %d", len(columns), n)
	}
	names, err := t.Labels.names()
	if err != nil {
		return nil, d.wrong(err)
	}
	for i, name := range names {
		if columns[i].Name != nil {
			return nil, d.fail("a table with labels whose columns have names, too")
		}
		columns[i].Name = name
	}
	return t, nil
}

func (d *decoder) series() (any, error) {
	var p seriesPayload
	if err := d.decode(reflect.ValueOf(&p).Elem()); err != nil {
		return nil, err
	}
	index, err := d.columns([]columnPayload{p.Index}, nil)
	if err != nil {
		return nil, err
	}
	values, err := d.columns([]columnPayload{p.Values}, &p.Index)
	if err != nil {
		return nil, err
	}
	return Series{values[0], index[0]}, nil
}

func (d *decoder) index() (any, error) {
	var p columnPayload
	if err := d.decode(reflect.ValueOf(&p).Elem()); err != nil {
		return nil, err
	}
	columns, err := d.columns([]columnPayload{p}, nil)
	if err != nil {
		return nil, err
	}
	return Index{columns[0]}, nil
}

// TableOf converts structs to a table, with a column for each field. The name of a column is the
// field's key in a dict. The values of a field are converted as by [ColumnOf].
func TableOf[T any](rows []T) (Table, error) {
	f, err := rowFields(reflect.TypeFor[T]())
	if err != nil {
		return Table{}, err
	}
	t := Table{Columns: make([]Column, len(f.list))}
	all := reflect.ValueOf(rows)
	for i, field := range f.list {
		values := reflect.MakeSlice(reflect.SliceOf(reflect.TypeFor[T]().FieldByIndex(field.index).Type), len(rows), len(rows))
		for row := range rows {
			x, err := all.Index(row).FieldByIndexErr(field.index)
			if err == nil { // an error means a nil embedded pointer: the value stays zero
				values.Index(row).Set(x)
			}
		}
		if t.Columns[i], err = columnOf(field.name, values); err != nil {
			return Table{}, err
		}
	}
	return t, nil
}

// Rows returns the rows of a table as structs. Columns are matched to fields like the keys of a
// dict. A column without a field is ignored, and a field without a column keeps its zero value. If
// a column has missing values, its field must have a pointer type.
func Rows[T any](t Table) ([]T, error) {
	f, err := rowFields(reflect.TypeFor[T]())
	if err != nil {
		return nil, err
	}
	rows := make([]T, t.Len())
	all := reflect.ValueOf(rows)
	for _, c := range t.Columns {
		name, ok := c.Name.(string)
		if !ok {
			continue
		}
		i, exact, ok := f.find(name)
		if !ok {
			continue
		}
		if _, taken := t.Column(f.list[i].name); taken && !exact {
			continue
		}
		if n, err := c.check(DefaultMaxElements); err != nil || n != len(rows) {
			return nil, fmt.Errorf("state: column %.40q: %d of %d rows: %w", name, n, len(rows), err)
		}
		reachable := true
		err := c.each(func(row int) reflect.Value {
			x, ok := settable(all.Index(row), f.list[i].index)
			if !ok {
				reachable = false
				return reflect.New(reflect.TypeFor[T]().FieldByIndex(f.list[i].index).Type).Elem()
			}
			return x
		})
		if err != nil {
			return nil, within(err, name)
		}
		if !reachable {
			return nil, fmt.Errorf("state: column %.40q: its field is in a nil pointer to an unexported type", name)
		}
	}
	return rows, nil
}

func rowFields(t reflect.Type) (*fields, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("state: rows of a table are structs, not %s", t)
	}
	f := fieldsOf(t)
	if f.err != "" {
		return nil, fmt.Errorf("state: %s: %s", t, f.err)
	}
	return f, nil
}
