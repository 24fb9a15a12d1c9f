package sandbox

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/api"
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
			&LineChart{
				Title: "T", Grid: Grid{
					Axes: Axes{XLabel: "t (s)", XUnit: "s"}, XScale: ScaleLinear, YScale: ScaleLog,
					XTicks: []Coordinate{number(0), number(1.5)}, YTicks: []Coordinate{number(math.NaN())}, XTickLabels: []string{"0", "1.5"}, YTickLabels: []string{},
				},
				Lines: []Series{{"a", []Point{{number(0), number(1)}, {number(1), number(math.Inf(1))}}}, {"b", []Point{}}},
			},
		},
		"scatter with times and names": {
			`{"type":"scatter","title":null,"x_scale":"datetime","y_scale":"categorical","elements":[{"label":"a","points":[["2026-01-02T03:04:05","x"],["soon","y"]]}]}`,
			&ScatterChart{
				Grid: Grid{XScale: ScaleDatetime, YScale: ScaleCategorical, XTicks: []Coordinate{}, YTicks: []Coordinate{}},
				Groups: []Series{{"a", []Point{
					{Coordinate{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Text: "2026-01-02T03:04:05"}, Coordinate{Text: "x"}},
					{Coordinate{Text: "soon"}, Coordinate{Text: "y"}},
				}}},
			},
		},
		"bar":   {`{"type":"bar","title":"B","x_label":"x","y_label":"y","x_unit":null,"y_unit":null,"elements":[{"label":"a","group":"g","value":3}]}`, &BarChart{"B", Axes{XLabel: "x", YLabel: "y"}, []Bar{{"a", "g", 3}}}},
		"pie":   {`{"type":"pie","title":null,"elements":[{"label":"a","angle":90,"radius":1}]}`, &PieChart{"", []PieSlice{{"a", 90, 1}}}},
		"boxes": {`{"type":"box_and_whisker","elements":[{"label":"a","min":1,"first_quartile":2,"median":3,"third_quartile":4,"max":5,"outliers":[9]}]}`, &BoxAndWhiskerChart{"", Axes{}, []Box{{"a", 1, 2, 3, 4, 5, []float64{9}}}}},
		"two": {
			`{"type":"superchart","title":"both","elements":[{"type":"pie","elements":[]},{"type":"unknown","title":"u","elements":[]},{"type":"superchart","elements":[]}]}`,
			&SuperChart{"both", []Chart{
				&PieChart{"", []PieSlice{}},
				&UnknownChart{Title: "u", Type: "unknown", Raw: json.RawMessage(`{"type":"unknown","title":"u","elements":[]}`)},
				&UnknownChart{Type: "superchart", Raw: json.RawMessage(`{"type":"superchart","elements":[]}`), Err: cmpopts.AnyError},
			}},
		},
		"no type":            {`{"title":"T"}`, &UnknownChart{Title: "T", Raw: json.RawMessage(`{"title":"T"}`)}},
		"no object":          {`[1]`, &UnknownChart{Raw: json.RawMessage(`[1]`), Err: cmpopts.AnyError}},
		"no elements":        {`{"type":"pie","elements":null}`, &UnknownChart{Type: "pie", Raw: json.RawMessage(`{"type":"pie","elements":null}`), Err: cmpopts.AnyError}},
		"a point too short":  {`{"type":"line","elements":[{"points":[[1]]}]}`, &UnknownChart{Type: "line", Raw: json.RawMessage(`{"type":"line","elements":[{"points":[[1]]}]}`), Err: cmpopts.AnyError}},
		"a value is missing": {`{"type":"bar","elements":[{"label":"a"}]}`, &UnknownChart{Type: "bar", Raw: json.RawMessage(`{"type":"bar","elements":[{"label":"a"}]}`), Err: cmpopts.AnyError}},
		"a value is a word":  {`{"type":"bar","elements":[{"value":"many"}]}`, &UnknownChart{Type: "bar", Raw: json.RawMessage(`{"type":"bar","elements":[{"value":"many"}]}`), Err: cmpopts.AnyError}},
	} {
		got, ok := Result{Data: map[string]json.RawMessage{mimeChart: json.RawMessage(test.data)}}.Chart()
		if diff := cmp.Diff(test.want, got, cmpopts.EquateErrors(), cmpopts.EquateNaNs()); diff != "" || !ok {
			t.Errorf("%s: %v %s", name, ok, diff)
		}
	}
	if _, ok := (Result{}).Chart(); ok {
		t.Error("a chart of nothing")
	}
	// What the service sends for a figure of which it could read nothing.
	for _, data := range []string{`{}`, " { }\n"} {
		if chart, ok := (Result{Data: map[string]json.RawMessage{mimeChart: json.RawMessage(data)}}).Chart(); ok || chart != nil {
			t.Errorf("%q is the chart %+v", data, chart)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	table, ok := Result{Data: map[string]json.RawMessage{mimeTable: json.RawMessage(`{"z":[1,2],"a":["x",null],"z":[3]}`)}}.Table()
	if !ok {
		t.Fatal("no table")
	}
	if diff := cmp.Diff([]string{"z", "a"}, table.Columns); diff != "" {
		t.Error(diff)
	}
	var numbers []int64
	var words []*string
	if err := errors.Join(table.Column("z", &numbers), table.Column("a", &words)); err != nil || len(numbers) != 1 || words[1] != nil {
		t.Errorf("%v %v %v", numbers, words, err)
	}
	if err := table.Column("b", &numbers); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if err := table.Column("a", &numbers); err == nil {
		t.Error("words as numbers")
	}
	for _, data := range []string{`[]`, `{"a":1}`, `{"a":[1]`, `7`} {
		if _, ok := (Result{Data: map[string]json.RawMessage{mimeTable: json.RawMessage(data)}}).Table(); ok {
			t.Errorf("%s is a table", data)
		}
	}
	if _, ok := (Result{}).Table(); ok {
		t.Error("a table of nothing")
	}
}

func FuzzChart(f *testing.F) {
	f.Add([]byte(`{"type":"superchart","elements":[{"type":"line","x_scale":"datetime","elements":[{"label":"a","points":[["2026-01-02",1]]}]}]}`))
	f.Add([]byte(`{"type":"box_and_whisker","elements":[{"min":"nan","outliers":[null]}]}`))
	f.Add([]byte(`{"a":[1],"b":["x"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := Result{Data: map[string]json.RawMessage{mimeChart: data, mimeTable: data}}
		chart, ok := r.Chart()
		if ok == (chart == nil) {
			t.Fatalf("%v with the chart %+v", ok, chart)
		}
		if table, ok := r.Table(); ok {
			for _, name := range table.Columns {
				var values []any
				if err := table.Column(name, &values); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
