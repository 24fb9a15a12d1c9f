package chart

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestChart(t *testing.T) {
	t.Parallel()
	number := func(n float64) Coordinate { return Coordinate{Number: n} }
	for name, test := range map[string]struct {
		data string
		want Chart
	}{
		"line": {
			`{"type":"line","title":"T","x_label":"t (s)","y_label":null,"x_unit":"s","y_unit":null,"x_scale":"linear","y_scale":"log",
			"x_ticks":[0,1.5],"y_ticks":["nan"],"x_tick_labels":["0","1.5"],"y_tick_labels":[],"more":1,
			"elements":[{"label":"a","points":[[0,1],[1,"inf"]]},{"label":"b","points":[]}]}`,
			&Line{
				Title: "T", Grid: Grid{
					Axes: Axes{XLabel: "t (s)", XUnit: "s"}, XScale: ScaleLinear, YScale: ScaleLog,
					XTicks: []Coordinate{number(0), number(1.5)}, YTicks: []Coordinate{number(math.NaN())}, XTickLabels: []string{"0", "1.5"}, YTickLabels: []string{},
				},
				Lines: []PointData{{"a", []Point{{number(0), number(1)}, {number(1), number(math.Inf(1))}}}, {"b", []Point{}}},
			},
		},
		"scatter with times and names": {
			`{"type":"scatter","title":null,"x_scale":"datetime","y_scale":"categorical","elements":[{"label":"a","points":[["2026-01-02T03:04:05","x"],["soon","y"]]}]}`,
			&Scatter{
				Grid: Grid{XScale: ScaleDatetime, YScale: ScaleCategorical, XTicks: []Coordinate{}, YTicks: []Coordinate{}},
				Groups: []PointData{{"a", []Point{
					{Coordinate{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Text: "2026-01-02T03:04:05"}, Coordinate{Text: "x"}},
					{Coordinate{Text: "soon"}, Coordinate{Text: "y"}},
				}}},
			},
		},
		"bar":   {`{"type":"bar","title":"B","x_label":"x","y_label":"y","x_unit":null,"y_unit":null,"elements":[{"label":"a","group":"g","value":3}]}`, &Bar{"B", Axes{XLabel: "x", YLabel: "y"}, []BarData{{"a", "g", 3}}}},
		"pie":   {`{"type":"pie","title":null,"elements":[{"label":"a","angle":90,"radius":1}]}`, &Pie{"", []PieData{{"a", 90, 1}}}},
		"boxes": {`{"type":"box_and_whisker","elements":[{"label":"a","min":1,"first_quartile":2,"median":3,"third_quartile":4,"max":5,"outliers":[9]}]}`, &BoxAndWhisker{"", Axes{}, []BoxData{{"a", 1, 2, 3, 4, 5, []float64{9}}}}},
		"two": {
			`{"type":"superchart","title":"both","elements":[{"type":"pie","elements":[]},{"type":"unknown","title":"u","elements":[]},{"type":"superchart","elements":[]}]}`,
			&Super{"both", []Chart{
				&Pie{"", []PieData{}},
				&Unknown{Title: "u", Type: "unknown", Raw: json.RawMessage(`{"type":"unknown","title":"u","elements":[]}`)},
				&Unknown{Type: "superchart", Raw: json.RawMessage(`{"type":"superchart","elements":[]}`), Err: cmpopts.AnyError},
			}},
		},
		"no type":            {`{"title":"T"}`, &Unknown{Title: "T", Raw: json.RawMessage(`{"title":"T"}`)}},
		"no object":          {`[1]`, &Unknown{Raw: json.RawMessage(`[1]`), Err: cmpopts.AnyError}},
		"no elements":        {`{"type":"pie","elements":null}`, &Unknown{Type: "pie", Raw: json.RawMessage(`{"type":"pie","elements":null}`), Err: cmpopts.AnyError}},
		"a point too short":  {`{"type":"line","elements":[{"points":[[1]]}]}`, &Unknown{Type: "line", Raw: json.RawMessage(`{"type":"line","elements":[{"points":[[1]]}]}`), Err: cmpopts.AnyError}},
		"a value is missing": {`{"type":"bar","elements":[{"label":"a"}]}`, &Unknown{Type: "bar", Raw: json.RawMessage(`{"type":"bar","elements":[{"label":"a"}]}`), Err: cmpopts.AnyError}},
		"a value is a word":  {`{"type":"bar","elements":[{"value":"many"}]}`, &Unknown{Type: "bar", Raw: json.RawMessage(`{"type":"bar","elements":[{"value":"many"}]}`), Err: cmpopts.AnyError}},
	} {
		got, ok := Parse(json.RawMessage(test.data))
		if diff := cmp.Diff(test.want, got, cmpopts.EquateErrors(), cmpopts.EquateNaNs()); diff != "" || !ok {
			t.Errorf("%s: a chart: %v (-want +got):\n%s", name, ok, diff)
		}
	}
	// The service sends this for a figure that it could not read at all.
	for _, data := range []string{`{}`, " { }\n"} {
		if got, ok := Parse(json.RawMessage(data)); ok || got != nil {
			t.Errorf("%q is the chart %+v", data, got)
		}
	}
}

func TestDataFrame(t *testing.T) {
	t.Parallel()
	frame, err := ParseDataFrame([]byte(`{"z":[1,2],"a":["x",null],"z":[3]}`))
	must.Do(t, err)
	if diff := cmp.Diff([]string{"z", "a"}, frame.Columns); diff != "" {
		t.Error(diff)
	}
	var numbers []int64
	var words []*string
	if err := errors.Join(frame.Column("z", &numbers), frame.Column("a", &words)); err != nil || len(numbers) != 1 || words[1] != nil {
		t.Errorf("got %v %v %v, want one number, no second word and no error", numbers, words, err)
	}
	if err := frame.Column("b", &numbers); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("got %v, want api.ErrNotFound", err)
	}
	if err := frame.Column("a", &numbers); err == nil {
		t.Error("words as numbers, want an error")
	}
	for _, data := range []string{`[]`, `{"a":1}`, `{"a":[1]`, `7`} {
		if _, err := ParseDataFrame([]byte(data)); err == nil {
			t.Errorf("%s is taken for a data frame, want an error", data)
		}
	}
}

func FuzzChart(f *testing.F) {
	f.Add([]byte(`{"type":"superchart","elements":[{"type":"line","x_scale":"datetime","elements":[{"label":"a","points":[["2026-01-02",1]]}]}]}`))
	f.Add([]byte(`{"type":"box_and_whisker","elements":[{"min":"nan","outliers":[null]}]}`))
	f.Add([]byte(`{"a":[1],"b":["x"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, ok := Parse(data); ok == (got == nil) {
			t.Fatalf("%v with the chart %+v", ok, got)
		}
		if frame, err := ParseDataFrame(data); err == nil {
			for _, name := range frame.Columns {
				var values []any
				must.Do(t, frame.Column(name, &values))
			}
		}
	})
}
