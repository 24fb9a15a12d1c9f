package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// MIMETypeDataFrame is the MIME type of a data frame's columns in a result.
const MIMETypeDataFrame = "e2b/data"

// DataFrame is a table of named columns in order.
type DataFrame struct {
	// Columns lists the names of the columns in order.
	Columns []string

	values map[string]json.RawMessage
}

// Column stores the values of a column in the slice to which the parameter to points. Times are ISO
// 8601 strings. A missing value is null. In a []float64, null becomes NaN. For other types, use a
// slice of pointers. If there is no such column, the error is [api.ErrNotFound].
func (t *DataFrame) Column(name string, to any) error {
	values, ok := t.values[name]
	if !ok {
		return fmt.Errorf("chart: the data frame has no column %.64q: %w", name, api.ErrNotFound)
	}
	if err := jupyter.UnmarshalJSON(values, to); err != nil {
		return fmt.Errorf("chart: decode the column %.64q: %w", name, err)
	}
	return nil
}

var errNoColumns = errors.New("not an object of columns")

// ParseDataFrame decodes the data of a data frame, token by token, because a map would lose the
// order of the columns.
func ParseDataFrame(data []byte) (*DataFrame, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, errNoColumns
	}
	t := &DataFrame{values: map[string]json.RawMessage{}}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string) // a key is always a string
		var values json.RawMessage
		if err := d.Decode(&values); err != nil {
			return nil, err
		}
		if values[0] != '[' {
			return nil, errNoColumns
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
