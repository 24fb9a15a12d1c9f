//go:build linux

package kernel

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// The fields of a chart except its ticks, which matplotlib chooses.
const (
	axesOfNothing = `"x_label":null,"y_label":null,"x_unit":null,"y_unit":null`
	linear        = axesOfNothing + `,"x_scale":"linear","y_scale":"linear"`
)

// figure is code that draws, and the chart that comes of it.
type figure struct{ name, code, want string }

func TestCharts(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	if o := s.run("import datetime, numpy, matplotlib.pyplot as plt, matplotlib.collections, matplotlib.patches\ndays = [datetime.date(2024, 1, d) for d in (1, 2)]\nnan = float('nan')"); len(o.errors) > 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("no matplotlib in this Python, which CI needs")
		}
		t.Skip("no matplotlib in this Python")
	}
	for _, f := range slices.Concat(lineFigures, barFigures, pieAndBoxFigures, otherFigures) {
		t.Run(f.name, func(t *testing.T) { f.check(t, s) })
	}
	o := s.run("plt.plot(range(500001)); plt.show()")
	if want := "e2b/chart is left out of a result: 500001 points"; len(o.results) != 1 || o.results[0].Data["e2b/chart"] != nil || !strings.Contains(o.stderr, want) {
		t.Errorf(`a figure of many points: %q, errors %v, want one result, no chart and %q in stderr`, o.stderr, o.errors, want)
	}
}

// check shows the figure in a kernel that has matplotlib.
func (f figure) check(t *testing.T, s *session) {
	t.Helper()
	o := s.run(f.code + ";\nplt.show()")
	if len(o.errors) > 0 || o.stderr != "" {
		t.Fatalf("errors %v, stderr %q, want none", o.errors, o.stderr)
	}
	if len(o.results) != 1 || o.results[0].Data["image/png"] == nil {
		t.Fatalf("%d results, want one, a picture", len(o.results))
	}
	var got, want map[string]any
	must.Do(t, json.Unmarshal(o.results[0].Data["e2b/chart"], &got))
	must.Do(t, json.Unmarshal([]byte(f.want), &want))
	for _, axis := range []string{"x", "y"} {
		ticks, labels := got[axis+"_ticks"], got[axis+"_tick_labels"]
		if ticks != nil && len(ticks.([]any)) != len(labels.([]any)) {
			t.Errorf("ticks %v with labels %v", ticks, labels)
		}
		delete(got, axis+"_ticks")
		delete(got, axis+"_tick_labels")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

var lineFigures = []figure{
	{
		"lines", "plt.plot([1, 2, 3], [4, 5, 6], label='a'); plt.plot([1, 2, 3], [1, nan, 1]); plt.axhline(2); plt.title('T'); plt.xlabel('Time (s)'); plt.ylabel('Speed [m/s]')",
		`{"type":"line","title":"T","elements":[{"label":"a","points":[[1,4],[2,5],[3,6]]},{"label":"Line 1","points":[[1,1],[2,"nan"],[3,1]]}],
		"x_label":"Time (s)","y_label":"Speed [m/s]","x_unit":"s","y_unit":"m/s","x_scale":"linear","y_scale":"linear"}`,
	},
	{"dates", "plt.plot(days, [1, 2])", `{"type":"line","title":null,"elements":[{"label":"Line 0","points":[["2024-01-01",1],["2024-01-02",2]]}],` + axesOfNothing + `,"x_scale":"datetime","y_scale":"linear"}`},
	{"64-bit dates", "plt.plot(numpy.array(days, dtype='datetime64[s]'), [1, 2])", `{"type":"line","title":null,"elements":[{"label":"Line 0","points":[["2024-01-01T00:00:00",1],["2024-01-02T00:00:00",2]]}],` + axesOfNothing + `,"x_scale":"datetime","y_scale":"linear"}`},
	{"names and a logarithm", "plt.plot(['a', 'b'], [1, 10]); plt.yscale('log')", `{"type":"line","title":null,"elements":[{"label":"Line 0","points":[["a",1],["b",10]]}],` + axesOfNothing + `,"x_scale":"categorical","y_scale":"log"}`},
	{"scatter", "plt.scatter([1, 2], [3, 4], label='s'); plt.axhline(3)", `{"type":"scatter","title":null,"elements":[{"label":"s","points":[[1,3],[2,4]]}],` + linear + `}`},
	{"scattered dates", "plt.scatter(days, [3, 4], label='s')", `{"type":"scatter","title":null,"elements":[{"label":"s","points":[["2024-01-01T00:00:00+00:00",3],["2024-01-02T00:00:00+00:00",4]]}],` + axesOfNothing + `,"x_scale":"datetime","y_scale":"linear"}`},
	{
		"frames upon a line", "plt.plot([1, 2], [3, 4])\nfor x in 1, 2, 3: plt.gca().add_patch(plt.Rectangle((x, 0), 1, 1))",
		`{"type":"line","title":null,"elements":[{"label":"Line 0","points":[[1,3],[2,4]]}],` + linear + `}`,
	},
	{
		"a shape upon points", "plt.scatter([1], [2], label='s')\nfor _ in 1, 2: plt.gca().add_patch(matplotlib.patches.PathPatch(matplotlib.path.Path([(0, 0), (1, 1), (2, 0)])))",
		`{"type":"scatter","title":null,"elements":[{"label":"s","points":[[1,2]]}],` + linear + `}`,
	},
	{
		"an area of matplotlib before 3.10", "plt.gca().add_collection(matplotlib.collections.PolyCollection([[(1, 0), (1, 3), (2, 4), (2, 0), (2, 0), (1, 0)]], label='a')); plt.gca().autoscale_view()",
		`{"type":"line","title":null,"elements":[{"label":"a","points":[[1,3],[2,4]]}],` + linear + `}`,
	},
	{
		"a line of two equal points", "plt.plot([1, 2], [3, 3], label='a'); plt.axvline(1)",
		`{"type":"line","title":null,"elements":[{"label":"a","points":[[1,3],[2,3]]}],` + linear + `}`,
	},
	{
		"lines with error bars", "plt.errorbar([1, 2], [3, 4], yerr=.5, xerr=.1, capsize=2, label='a')",
		`{"type":"line","title":null,"elements":[{"label":"a","points":[[1,3],[2,4]]}],` + linear + `}`,
	},
	{
		"scatter with a line", "plt.scatter([1, 2], [3, 4], label='s'); plt.plot([1, 2], [3, 4])",
		`{"type":"scatter","title":null,"elements":[{"label":"s","points":[[1,3],[2,4]]}],` + linear + `}`,
	},
	{
		"an area", "plt.fill_between([1, 2], [3, 4], label='a')",
		`{"type":"line","title":null,"elements":[{"label":"a","points":[[1,3],[2,4]]}],` + linear + `}`,
	},
	{
		"a line in a band", "plt.plot([1, 2], [3, 4], label='a'); plt.fill_between([1, 2], [2, 3], [4, 5])",
		`{"type":"line","title":null,"elements":[{"label":"a","points":[[1,3],[2,4]]}],` + linear + `}`,
	},
	{
		"a band", "plt.fill_between([1, 2], [2, 3], [4, 5], label='a')",
		`{"type":"line","title":null,"elements":[{"label":"a","points":[[1,2],[2,3]]},{"label":"a","points":[[1,4],[2,5]]}],` + linear + `}`,
	},
	{
		"stacked areas", "plt.stackplot([1, 2], [3, 4], [5, 7], labels=['a', 'b'])",
		`{"type":"line","title":null,"elements":[{"label":"a","points":[[1,3],[2,4]]},{"label":"b","points":[[1,5],[2,7]]}],` + linear + `}`,
	},
	{
		"stems", "plt.stem([1, 2], [3, 4], label='a')",
		`{"type":"line","title":null,"elements":[{"label":"a","points":[[1,3],[2,4]]}],` + linear + `}`,
	},
	{
		"dates of pandas", "import pandas; pandas.Series([1, 2], pandas.date_range('2024-01-01', periods=2), name='s').plot(legend=True)",
		`{"type":"line","title":null,"elements":[{"label":"s","points":[["2024-01-01T00:00:00",1],["2024-01-02T00:00:00",2]]}],` + axesOfNothing + `,"x_scale":"datetime","y_scale":"linear"}`,
	},
}

var barFigures = []figure{
	{
		"groups of bars", "plt.bar(numpy.arange(2) - .2, [1, 2], .4, label='m'); plt.bar(numpy.arange(2) + .2, [3, 4], .4); plt.xticks([0, 1], ['A', 'B'])",
		`{"type":"bar","title":null,"elements":[{"label":"A","group":"m","value":1},{"label":"B","group":"m","value":2},{"label":"A","group":"Group 1","value":3},{"label":"B","group":"Group 1","value":4}],` + axesOfNothing + `}`,
	},
	{"bars of one height", "plt.bar(['a', 'b'], [2, 2])", `{"type":"bar","title":null,"elements":[{"label":"a","group":"Group 0","value":2},{"label":"b","group":"Group 0","value":2}],` + axesOfNothing + `}`},
	{"bars at numbers", "plt.bar([1, 2.5], [-1, 2])", `{"type":"bar","title":null,"elements":[{"label":"1.0","group":"Group 0","value":-1},{"label":"2.5","group":"Group 0","value":2}],` + axesOfNothing + `}`},
	{"horizontal bars", "plt.barh(['a', 'b'], [1, 2]); plt.xlabel('X (u)'); plt.ylabel('Y [v]')", `{"type":"bar","title":null,"elements":[{"label":"a","group":"Group 0","value":1},{"label":"b","group":"Group 0","value":2}],"x_label":"Y [v]","y_label":"X (u)","x_unit":"v","y_unit":"u"}`},
	{
		"frames upon bars", "plt.bar(['a'], [2])\nfor x in 1, 2, 3: plt.gca().add_patch(plt.Rectangle((x, 0), 1, 1))",
		`{"type":"bar","title":null,"elements":[{"label":"a","group":"Group 0","value":2}],` + axesOfNothing + `}`,
	},
	{
		"bars with error bars", "plt.bar(['a', 'b'], [1, 2], yerr=[.1, .2], capsize=3)",
		`{"type":"bar","title":null,"elements":[{"label":"a","group":"Group 1","value":1},{"label":"b","group":"Group 1","value":2}],` + axesOfNothing + `}`,
	},
	{
		"bars with a line and a span", "plt.bar(['a', 'b'], [1, 2]); plt.plot(['a', 'b'], [2, 1]); plt.axhspan(0, 1)",
		`{"type":"bar","title":null,"elements":[{"label":"a","group":"Group 0","value":1},{"label":"b","group":"Group 0","value":2}],` + axesOfNothing + `}`,
	},
	{
		"stacked bars with error bars", "plt.bar(['a'], [1], label='m'); plt.bar(['a'], [2], bottom=[1], yerr=[.5], label='n')",
		`{"type":"bar","title":null,"elements":[{"label":"a","group":"m","value":1},{"label":"a","group":"n","value":2}],` + axesOfNothing + `}`,
	},
	{
		"a histogram of steps", "plt.hist([1, 1, 3], bins=[0, 2, 4], histtype='step', label='h')",
		`{"type":"bar","title":null,"elements":[{"label":"1.0","group":"h","value":2},{"label":"3.0","group":"h","value":1}],` + axesOfNothing + `}`,
	},
	{
		"a lying histogram of steps", "plt.hist([1, 1, 3], bins=[0, 2, 4], histtype='step', orientation='horizontal')",
		`{"type":"bar","title":null,"elements":[{"label":"1.0","group":"Group 0","value":2},{"label":"3.0","group":"Group 0","value":1}],` + axesOfNothing + `}`,
	},
	{
		"a filled histogram", "plt.hist([1, 1, 3], bins=[0, 2, 4], histtype='stepfilled', label='h')",
		`{"type":"bar","title":null,"elements":[{"label":"1.0","group":"h","value":2},{"label":"3.0","group":"h","value":1}],` + axesOfNothing + `}`,
	},
	{
		"stairs", "plt.stairs([2, 1], [0, 2, 4], label='h')",
		`{"type":"bar","title":null,"elements":[{"label":"1.0","group":"h","value":2},{"label":"3.0","group":"h","value":1}],` + axesOfNothing + `}`,
	},
}

var pieAndBoxFigures = []figure{
	{"pie", "plt.pie([1, 3], labels=['a', 'b'], radius=2, explode=[.1, 0], counterclock=False)", `{"type":"pie","title":null,"elements":[{"label":"a","angle":90,"radius":2},{"label":"b","angle":270,"radius":2}]}`},
	{"thirds of a pie", "plt.pie([1, 2, 4], autopct='%1.1f%%', startangle=90)", `{"type":"pie","title":null,"elements":[{"label":"","angle":51.42857,"radius":1},{"label":"","angle":102.857,"radius":1},{"label":"","angle":205.714,"radius":1}]}`},
	{
		"boxes of measured values", "plt.boxplot([[1/3, 2/3, 1, 4/3, 5/3], [51234.5, 52345.6, 53456.7, 54567.8, 55678.9]], tick_labels=['a', 'b'], patch_artist=True)",
		`{"type":"box_and_whisker","title":null,"elements":[
		{"label":"a","min":0.333333333,"first_quartile":0.666666667,"median":1,"third_quartile":1.3333333,"max":1.6666667,"outliers":[]},
		{"label":"b","min":51230,"first_quartile":52350,"median":53460,"third_quartile":54570,"max":55680,"outliers":[]}],` + axesOfNothing + `}`,
	},
	{"boxes", "plt.boxplot([[1, 2, 3, 4, 100], [2, 3, 4]], tick_labels=['a', 'b'], patch_artist=True, showmeans=True)", boxes},
	{"notched boxes", "plt.boxplot([[1, 2, 3, 4, 100], [2, 3, 4]], tick_labels=['a', 'b'], patch_artist=True, notch=True)", boxes},
	{"lying boxes", "plt.boxplot([[1, 2, 3, 4, 100], [2, 3, 4]], tick_labels=['a', 'b'], patch_artist=True, orientation='horizontal')", boxes},
	{
		"a pie with a shadow", "plt.pie([1, 3], labels=['a', 'b'], shadow=True)",
		`{"type":"pie","title":null,"elements":[{"label":"a","angle":90,"radius":1},{"label":"b","angle":270,"radius":1}]}`,
	},
}

var otherFigures = []figure{
	{"a frame upon a picture", "plt.imshow([[1]]); plt.gca().add_patch(plt.Rectangle((0, 0), 1, 1))", `{"type":"unknown","title":null,"elements":[]}`},
	{"other polygons", "plt.gca().add_collection(matplotlib.collections.PolyCollection([[(1, 0), (1, 3), (2, 4), (3, 0), (2, 0), (1, 0)], [(0, 0), (1, 1), (2, 0)]])); plt.gca().autoscale_view()", `{"type":"unknown","title":null,"elements":[]}`},
	{
		"several", "_, (a, b) = plt.subplots(1, 2); a.pie([1]); b.imshow([[1]]); plt.suptitle('S')",
		`{"type":"superchart","title":"S","elements":[{"type":"pie","title":null,"elements":[{"label":"","angle":360,"radius":1}]},{"type":"unknown","title":null,"elements":[]}]}`,
	},
	{"nothing drawn", "plt.gca()", `{}`},
	{"what cannot be read", "plt.plot([1, 2, 3], [1, 2, 4]); plt.gca().get_title = None", `{}`},
}

const boxes = `{"type":"box_and_whisker","title":null,"elements":[
	{"label":"a","min":1,"first_quartile":2,"median":3,"third_quartile":4,"max":4,"outliers":[100]},
	{"label":"b","min":2,"first_quartile":2.5,"median":3,"third_quartile":3.5,"max":4,"outliers":[]}],` + axesOfNothing + `}`
