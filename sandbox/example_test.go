package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/chart"
)

func ExampleSandbox_StreamCode() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	for event, err := range sb.StreamCode(ctx, "for i in range(3): print(i)\n6 * 7", nil) {
		if err != nil {
			log.Print(err)
			return
		}
		switch e := event.(type) {
		case sandbox.StatusEvent:
			if e.State == sandbox.CodeQueued {
				fmt.Println("waits for", e.Position)
			}
		case sandbox.OutputEvent:
			fmt.Print(e.Text)
		case sandbox.EndEvent:
			var answer int
			if err := e.Execution.Decode(&answer); err != nil {
				log.Print(err)
				return
			}
			fmt.Println(answer, "after", e.Execution.Timing.Ran())
		}
	}
}

func ExampleResult_Chart() {
	show := func(r sandbox.Result) {
		figure, ok := r.Chart()
		if !ok {
			return
		}
		switch c := figure.(type) {
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
