package state_test

import (
	"testing"

	"github.com/e2bctl/e2bctl/state"
)

// TestLargestValue checks that a value of exactly the largest size is accepted, and no larger one,
// whatever its last bytes are. The size is that of the document with its blobs, each counted as
// often as it is named.
func TestLargestValue(t *testing.T) {
	t.Parallel()
	const part, small = 32 << 20, 1 << 20
	large := mustValue(t, make([]byte, part))
	rest := []any{large, large, large, large, large, large, large, mustValue(t, make([]byte, part-2*small))}
	for name, shape := range map[string]func(last any) any{
		"a list":           func(last any) any { return append(rest[:8:8], last) },
		"a tuple":          func(last any) any { return state.Tuple(append(rest[:8:8], last)) },
		"a list in a list": func(last any) any { return []any{append(rest[:8:8], []any{last})} },
		"a dict":           func(last any) any { return state.Dict{{"a", rest}, {"b", last}} },
		"a map":            func(last any) any { return map[string]any{"a": rest, "b": last} },
		"a struct":         func(last any) any { return struct{ A, B any }{rest, last} },
		"a deque":          func(last any) any { return state.Deque{Items: append(rest[:8:8], last)} },
		"an instance": func(last any) any {
			return state.Instance{Kind: state.KindSubclass, Type: "m.L", Value: []any{rest, last}}
		},
		"objects": func(last any) any {
			return state.Array{Dtype: "|O", Shape: []int{9}, Objects: append(rest[:8:8], last)}
		},
	} {
		for kind, last := range map[string]func(size int) any{
			"bytes":  func(size int) any { return make([]byte, size) },
			"floats": func(size int) any { return make([]float64, size/8) },
			"value":  func(size int) any { return mustValue(t, make([]byte, size)) },
		} {
			fits := mustValue(t, shape(last(small)))
			doc, _ := fits.Detached()
			// The numbers of digits of all sizes stay as they are.
			left := state.DefaultMaxBytes - len(doc) - 7*part - (part - 2*small)
			unit := 1
			if kind == "floats" {
				unit = 8
				left -= left % unit
			}
			if _, err := state.NewValue(shape(last(left))); err != nil {
				t.Errorf("%s with %s at its end, of the largest size: %v", name, kind, err)
			}
			if _, err := state.NewValue(shape(last(left + unit))); !isLimit(err, "MaxBytes") {
				t.Errorf("%s with %s at its end, one larger: %v, want a *state.LimitError of MaxBytes", name, kind, err)
			}
		}
	}
}
