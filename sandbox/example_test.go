package sandbox_test

import (
	"encoding/json"
	"fmt"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/chart"
)

func ExampleResult_Chart() {
	show := func(r sandbox.Result) {
		switch c := r.Chart().(type) { // nil if there is no figure
		case *chart.Bar:
			for _, bar := range c.Bars {
				fmt.Println(bar.Group, bar.Label, bar.Value)
			}
		case *chart.Unknown:
			fmt.Println("a figure of another kind:", c.Type)
		}
	}
	show(sandbox.Result{Data: map[string]json.RawMessage{
		"e2b/chart": json.RawMessage(`{"type":"bar","title":"Sales","elements":[{"label":"May","group":"2026","value":12}]}`),
	}})
	// Output: 2026 May 12
}
