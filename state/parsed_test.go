package state_test

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// A value that has no Go form is named by its type and text when it is refused, however it
// came here.
func TestParsedOpaqueIsNamed(t *testing.T) {
	t.Parallel()
	const one = `{"$":"opaque","type":"types.ModuleType","repr":"<module 'math'>","reason":"a module"}`
	for doc, want := range map[string]string{
		one:                     "types.ModuleType <module 'math'>",
		"[1," + one + "]":       "a list with one in it",
		`{"a":` + one + `}`:     "a dict with one in it",
		`[{"a":[` + one + `]}]`: "a list with one in it",
	} {
		parsed, err := state.Parse([]byte(`{"v":1,"value":`+doc+`}`), state.Bounds{})
		must.Do(t, err)
		var within []state.Value
		must.Do(t, state.Unmarshal([]byte(`{"v":1,"value":[`+doc+`]}`), &within))
		for how, v := range map[string]state.Value{"parsed": parsed, "as a part": within[0]} {
			if _, err := state.Marshal(v); err == nil || !strings.Contains(err.Error(), want) || !v.Opaque() {
				t.Errorf("%s, %s: got error %v, want one with %q", doc, how, err, want)
			}
		}
	}
}

// The limit of bytes counts the document together with the blobs that it names, and no others.
func TestParsedSizeHasItsBlobs(t *testing.T) {
	t.Parallel()
	value, err := state.NewValue([][]byte{make([]byte, 64<<10), bytes.Repeat([]byte{1}, 70<<10)})
	must.Do(t, err)
	doc, blobs := value.Detached()
	size := int64(len(doc) + 64<<10 + 70<<10)
	if len(blobs) != 2 || int64(value.Size()) != size {
		t.Fatalf("got %d blobs and %d bytes, want 2 and %d", len(blobs), value.Size(), size)
	}
	other := []byte("of another value")
	blobs[sha256.Sum256(other)] = other
	for limit, want := range map[int64]bool{size - 1: false, size: true, int64(len(doc)) - 1: false} {
		if _, err := state.ParseDetached(doc, blobs, state.Bounds{MaxBytes: limit}); (err == nil) != want || err != nil && !isLimit(err, "MaxBytes") {
			t.Errorf("%d bytes with the limit %d: got %v, want it accepted: %v", size, limit, err, want)
		}
	}
}
