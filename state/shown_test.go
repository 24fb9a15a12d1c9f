package state

import (
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestMostShownElements checks that String has the elements of a value with exactly as many as it shows, and of none with more.
func TestMostShownElements(t *testing.T) {
	t.Parallel()
	array := func(n int, shape ...int) Array {
		a, err := ArrayOf(make([]int64, n), shape...)
		must.Do(t, err)
		return a
	}
	column := func(n int) Column { return Column{Name: "c", Dtype: "int64", Data: array(n)} }
	for name, shown := range map[string][2]any{ // the largest that is shown, and one that is larger
		"an array": {array(maxShown), array(maxShown + 1)},
		"a grid":   {array(maxShown, 2, maxShown/2), array(maxShown+2, 2, maxShown/2+1)},
		"a series": {Series{Column: column(maxShown)}, Series{Column: column(maxShown + 1)}},
		"an index": {Index{column(maxShown)}, Index{column(maxShown + 1)}},
		"rows":     {Table{Columns: []Column{column(maxShown)}}, Table{Columns: []Column{column(maxShown + 1)}}},
		"cells":    {Table{Columns: []Column{column(maxShown / 2), column(maxShown / 2)}}, Table{Columns: []Column{column(maxShown/2 + 1), column(maxShown/2 + 1)}}},
	} {
		for i, want := range []int{maxShown, 0} {
			v, err := NewValue(shown[i])
			must.Do(t, err)
			text := v.String()
			if got := strings.Count(text, "0, ") + strings.Count(text, "0]"); got != want {
				t.Errorf("%s: %d elements are shown, want %d, in %.80s", name, got, want, text)
			}
		}
	}
}

// TestFormsOfFloats checks the numbers at which floats get an exponent, as in Python.
func TestFormsOfFloats(t *testing.T) {
	t.Parallel()
	for f, want := range map[float64]string{
		0: "0.0", 1e-4: "0.0001", 0.00009999: "9.999e-05", 9999999999999998: "9999999999999998.0", 1e16: "1e+16", -1e16: "-1e+16", -1e-4: "-0.0001", 1.5: "1.5",
	} {
		if got := string(appendFloat(nil, f)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
