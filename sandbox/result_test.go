package sandbox

import (
	"encoding/json"
	"testing"
)

func TestResultChartAndDataFrame(t *testing.T) {
	t.Parallel()
	if c := (Result{}).Chart(); c != nil {
		t.Error("a result of nothing has a chart")
	}
	if frame := (Result{}).DataFrame(); frame != nil {
		t.Error("a result of nothing has a data frame")
	}
	r := Result{Data: map[string]json.RawMessage{
		"e2b/chart": json.RawMessage(`{"type":"pie","elements":[]}`),
		"e2b/data":  json.RawMessage(`{"a":[1]}`),
	}}
	if c := r.Chart(); c == nil {
		t.Error("the chart is not found")
	}
	if frame := r.DataFrame(); frame == nil || len(frame.Columns) != 1 {
		t.Errorf("the data frame is %+v", frame)
	}
	r.Data["e2b/data"] = json.RawMessage(`{"a":1}`)
	if frame := r.DataFrame(); frame != nil {
		t.Error("a column that is no list is taken for one")
	}
}
