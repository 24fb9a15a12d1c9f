package jupyter

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestNumbers(t *testing.T) {
	t.Parallel()
	var got []float64
	must.Do(t, UnmarshalJSON(json.RawMessage(`[1, null, "nan", "Infinity", "-inf", 2.5e3]`), &got))
	want := []float64{1, math.NaN(), math.NaN(), math.Inf(1), math.Inf(-1), 2500}
	if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, data := range []string{`["many"]`, `[[]]`, `{}`, `[1`, `[true]`} {
		if err := UnmarshalJSON(json.RawMessage(data), &got); err == nil {
			t.Errorf("%s is taken for numbers, want an error", data)
		}
	}
	var words []string
	if err := UnmarshalJSON(json.RawMessage(`["nan"]`), &words); err != nil || words[0] != "nan" {
		t.Errorf("words came as %q, %v, want %q first and no error", words, err, "nan")
	}
	for _, data := range []string{``, `"`, `"\x"`} {
		if number, text, err := ParseNumber([]byte(data)); err == nil {
			t.Errorf("%q is the number %v or the text %q, want an error", data, number, text)
		}
	}
}
