package state_test

import (
	"fmt"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// large returns values of 64 MiB each, in the shapes that programs have.
func large() map[string]any {
	floats, ints := make([]float64, 8<<20), make([]int, 8<<20)
	for i := range floats {
		floats[i], ints[i] = float64(i)/3, i
	}
	lines := make([]string, 1<<20)
	for i := range lines {
		lines[i] = fmt.Sprintf("%063d\n", i)
	}
	return map[string]any{"bytes": make([]byte, 64<<20), "floats": floats, "ints": ints, "strings": lines}
}

// Benchmark64MiB measures the cost of Set, and of a pulled value.
func Benchmark64MiB(b *testing.B) {
	for name, v := range large() {
		doc, err := state.Marshal(v)
		must.Do(b, err)
		b.Run(name+"/set", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must.Do(b, state.New().Set("x", v))
			}
		})
		b.Run(name+"/decode", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var err error
				switch v.(type) {
				case []byte:
					err = state.Unmarshal(doc, new([]byte))
				case []float64:
					err = state.Unmarshal(doc, new([]float64))
				case []int:
					err = state.Unmarshal(doc, new([]int))
				case []string:
					err = state.Unmarshal(doc, new([]string))
				}
				must.Do(b, err)
			}
		})
	}
}
