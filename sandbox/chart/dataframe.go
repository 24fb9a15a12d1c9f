package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// MIMETypeDataFrame is the type of a data frame's columns in a result.
const MIMETypeDataFrame = "e2b/data"

// DataFrame has columns in their order.
type DataFrame struct {
	// Columns are the names.
	Columns []string

	values map[string]json.RawMessage
}

// Column puts the values of a column into the slice that to points to. Times
// are strings of ISO 8601. What is missing is null: a []float64 has NaN for it,
// for other types have a slice of pointers. A column that is not there is
// [api.ErrNotFound].
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

// ParseDataFrame reads the data of a data frame, token by token: a map would
// forget its order.
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
		name, _ := key.(string) // a key is one
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
