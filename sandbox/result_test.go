package sandbox

import (
	"encoding/json"
	"testing"
)

func TestResultChartAndDataFrame(t *testing.T) {
	t.Parallel()
	if _, ok := (Result{}).Chart(); ok {
		t.Error("a result of nothing has a chart")
	}
	if _, ok := (Result{}).DataFrame(); ok {
		t.Error("a result of nothing has a data frame")
	}
	r := Result{Data: map[string]json.RawMessage{
		"e2b/chart": json.RawMessage(`{"type":"pie","elements":[]}`),
		"e2b/data":  json.RawMessage(`{"a":[1]}`),
	}}
	if _, ok := r.Chart(); !ok {
		t.Error("the chart is not found")
	}
	if frame, ok := r.DataFrame(); !ok || len(frame.Columns) != 1 {
		t.Errorf("the data frame is %+v, found: %v", frame, ok)
	}
	r.Data["e2b/data"] = json.RawMessage(`{"a":1}`)
	if _, ok := r.DataFrame(); ok {
		t.Error("a column that is no list is taken for one")
	}
}
