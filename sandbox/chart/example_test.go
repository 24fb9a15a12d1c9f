package chart_test

import (
	"encoding/json"
	"fmt"

	"github.com/e2bctl/e2bctl/sandbox/chart"
)

func ExampleParse() {
	// The data that comes beside the picture of a matplotlib plot:
	// Result.Data[chart.MIMEType].
	data := json.RawMessage(`{"type":"pie","title":"Fruit","elements":[{"label":"apple","angle":270,"radius":1},{"label":"pear","angle":90,"radius":1}]}`)
	figure, ok := chart.Parse(data)
	if !ok {
		fmt.Println("no chart")
		return
	}
	switch c := figure.(type) {
	case *chart.Pie:
		for _, slice := range c.Slices {
			fmt.Println(slice.Label, slice.Angle)
		}
	case *chart.Unknown:
		fmt.Println("a figure of another kind:", c.Type)
	}
	// Output:
	// apple 270
	// pear 90
}
