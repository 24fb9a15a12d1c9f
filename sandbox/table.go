package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/api"
)

// mimeTable is the type of a data frame's columns.
const mimeTable = "e2b/data"

// Table is a data frame: columns in their order.
type Table struct {
	// Columns are the names.
	Columns []string

	values map[string]json.RawMessage
}

// Table is the data of a data frame; ok is false when there is none.
func (r Result) Table() (table *Table, ok bool) {
	data, ok := r.Data[mimeTable]
	if !ok {
		return nil, false
	}
	table, err := parseTable(data)
	return table, err == nil
}

// Column puts the values of a column into the slice that to points to. Times
// are strings of ISO 8601. What is missing is null: a []float64 has NaN for it,
// for other types have a slice of pointers.
func (t *Table) Column(name string, to any) error {
	values, ok := t.values[name]
	if !ok {
		return fmt.Errorf("sandbox: the table has no column %.64q: %w", name, api.ErrNotFound)
	}
	if err := decodeJSON(values, to); err != nil {
		return fmt.Errorf("sandbox: decode the column %.64q: %w", name, err)
	}
	return nil
}

var errTable = errors.New("not an object of columns")

// parseTable reads an object token by token: a map would forget its order.
func parseTable(data []byte) (*Table, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, errTable
	}
	t := &Table{values: map[string]json.RawMessage{}}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string) // a key is one
		var values json.RawMessage
		if err := d.Decode(&values); err != nil {
			return nil, err
		}
		if values[0] != '[' {
			return nil, errTable
		}
		if _, twice := t.values[name]; !twice {
			t.Columns = append(t.Columns, name)
		}
		t.values[name] = values
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	return t, nil
}
