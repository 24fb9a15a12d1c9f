//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/chart"
)

// Every representation of a value arrives over both transports, including those
// that have no name in this package.
func TestEveryFormOfAResult(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		execution, err := sb.RunCode(t.Context(), `
from IPython.display import display
display({
    "text/plain": "'plain'", "text/html": "<b>é</b>", "text/markdown": "**m**", "image/svg+xml": "<svg/>", "image/png": "cG5n\n",
    "image/jpeg": "anBn", "application/pdf": "cGRm", "text/latex": "$x$", "application/json": [1, {"a": None}],
    "application/javascript": "1;", "application/vnd.own+json": {"own": [True]}, "text/own": "own",
}, raw=True)
{"n": 41 + 1}`, nil)
		must.Do(t, err)
		if len(execution.Results) != 2 {
			t.Fatalf("%d results, want 2", len(execution.Results))
		}
		r := execution.Results[0]
		got := []string{
			r.Text(), r.HTML(), r.Markdown(), r.SVG(), string(r.PNG()), string(r.JPEG()), string(r.PDF()), r.LaTeX(), string(r.JSON()), r.JavaScript(),
			string(r.Data["application/vnd.own+json"]), string(r.Data["text/own"]), fmt.Sprint(r.Main),
		}
		want := []string{"plain", "<b>é</b>", "**m**", "<svg/>", "png", "jpg", "pdf", "$x$", `[1,{"a":null}]`, "1;", `{"own":[true]}`, `"own"`, "false"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		var value struct{ N int }
		if main, ok := execution.Main(); !ok || !main.Main {
			t.Errorf("got %+v, %v, want the main result", main, ok)
		}
		if err := execution.Decode(&value); err != nil || value.N != 42 {
			t.Errorf("got %+v, %v, want 42 and no error", value, err)
		}
	})
}

// An execution reports the order, the number, the time and the omissions.
func TestWhatAnExecutionTells(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		before := time.Now()
		first, err := sb.RunCode(t.Context(), "import sys\nfor i in range(3):\n  print(i, flush=True)\n  print(-i, file=sys.stderr, flush=True)\n1", nil)
		must.Do(t, err)
		var order []string
		for _, l := range first.Logs {
			order = append(order, fmt.Sprintf("%s %s", l.Stream, strings.TrimSpace(l.Text)))
		}
		if want := []string{"stdout 0", "stderr 0", "stdout 1", "stderr -1", "stdout 2", "stderr -2"}; !slices.Equal(order, want) {
			t.Errorf("got %q, want %q", order, want)
		}
		timing := first.Timing
		if timing.Asked.Before(before) || timing.Started.Before(timing.Asked) || timing.Finished.Before(timing.Started) {
			t.Errorf("got %+v after %v, want asked, started and finished in this order", timing, before)
		}
		if first.Truncated() {
			t.Errorf("got %+v, want all the output", first)
		}
		second, err := sb.RunCode(t.Context(), "print('x' * 100, end='')", &sandbox.RunCodeParams{MaxOutputBytes: 10})
		must.Do(t, err)
		if second.Count != first.Count+1 {
			t.Errorf("got the count %d, want %d", second.Count, first.Count+1)
		}
		if want := "[90 bytes dropped]"; second.StdoutDropped != 90 || !second.Truncated() || !strings.Contains(second.Stdout, want) {
			t.Errorf("got %+v, want 90 bytes dropped, and %q in stdout", second, want)
		}
		failed, err := sb.RunCode(t.Context(), "print('before')\n\nraise ValueError('why')", &sandbox.RunCodeParams{Stdout: io.Discard})
		exception, ok := errors.AsType[*sandbox.ExecutionError](err)
		if !ok || failed.Error != exception {
			t.Fatalf("got %+v, %v, want the same *sandbox.ExecutionError in both", failed, err)
		}
		if exception.Line != 3 || exception.Value != "why" {
			t.Errorf("got line %d, %q, want line 3, %q", exception.Line, exception.Value, "why")
		}
		if failed.Stdout != "before\n" || failed.Count != second.Count+1 {
			t.Errorf("got stdout %q, count %d, want %q, %d", failed.Stdout, failed.Count, "before\n", second.Count+1)
		}
	})
}

// A plot of matplotlib arrives as a typed chart beside its picture.
func TestCharts(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		const draw = "import matplotlib.pyplot as plt\n"
		for code, check := range map[string]func(chart.Chart) bool{
			"plt.plot([1, 2], [3, 4], label='a'); plt.xlabel('t (s)')": func(c chart.Chart) bool {
				line, ok := c.(*chart.Line)
				return ok && line.XUnit == "s" && line.Lines[0].Label == "a" && line.Lines[0].Points[1].Y.Number == 4
			},
			"plt.scatter([1], [2])": func(c chart.Chart) bool {
				scatter, ok := c.(*chart.Scatter)
				return ok && scatter.Groups[0].Points[0].X.Number == 1
			},
			"plt.bar(['a', 'b'], [1, 2])": func(c chart.Chart) bool {
				bar, ok := c.(*chart.Bar)
				return ok && bar.Bars[1].Label == "b" && bar.Bars[1].Value == 2
			},
			"plt.pie([1, 3], labels=['a', 'b'])": func(c chart.Chart) bool {
				pie, ok := c.(*chart.Pie)
				return ok && pie.Slices[1].Angle == 270
			},
			"plt.boxplot([[1, 2, 3, 4, 100]], patch_artist=True)": func(c chart.Chart) bool {
				box, ok := c.(*chart.BoxAndWhisker)
				return ok && box.Boxes[0].Median == 3 && box.Boxes[0].Outliers[0] == 100
			},
			"_, (a, b) = plt.subplots(1, 2); a.plot([1]); b.imshow([[1]]); plt.suptitle('S')": func(c chart.Chart) bool {
				all, ok := c.(*chart.Super)
				if !ok || all.Title != "S" || len(all.Charts) != 2 {
					return false
				}
				_, unknown := all.Charts[1].(*chart.Unknown)
				return unknown
			},
		} {
			execution, err := sb.RunCode(t.Context(), draw+code+"\nplt.show()", nil)
			if err != nil {
				t.Fatalf("%s: %v", code, err)
			}
			result := execution.Results[len(execution.Results)-1]
			if got := result.Chart(); got == nil || !check(got) {
				t.Errorf("%s: its chart is %#v, which is not what was drawn", code, got)
			}
			if png := result.PNG(); !bytes.HasPrefix(png, []byte("\x89PNG\r\n\x1a\n")) {
				t.Errorf("%s: the picture begins with %q, want %q", code, png[:min(len(png), 8)], "\x89PNG\r\n\x1a\n")
			}
		}
	})
}
