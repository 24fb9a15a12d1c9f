package agent

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// TestFrameIsWhole checks that a frame is read only if its parts have exactly its size.
func TestFrameIsWhole(t *testing.T) {
	t.Parallel()
	const document, broken = `{"v":1,"value":1}`, `{"v":1,"value":0`
	head := func(size int) string { return fmt.Sprintf(`{"values":[["a",%d]],"blobs":[]}`+"\n", size) }
	whole, blob := head(len(document)), fmt.Sprintf(`{"values":[],"blobs":[["%x",1]]}`+"\n", sha256.Sum256([]byte("x")))
	for name, tt := range map[string]struct {
		text       string
		head, size int
		want       bool
	}{
		"whole":                 {whole + document, len(whole), len(whole + document), true},
		"a byte more":           {whole + document + "x", len(whole), len(whole+document) + 1, false},
		"a byte less":           {whole + document, len(whole), len(whole+document) - 1, false},
		"cut off":               {whole + document[:3], len(whole), len(whole + document), false},
		"a part that is larger": {head(len(document)+1) + document, len(head(99)), len(head(99) + document), false},
		"a negative part":       {head(-1) + document, len(head(-1)), len(head(-1) + document), false},
		"a head beyond it":      {whole, len(whole) + 1, len(whole), false},
		"a negative head":       {whole + document, -1, len(whole + document), false},
		"a broken document":     {head(len(broken)) + broken, len(head(len(broken))), len(head(len(broken)) + broken), false},
		"a blob of another":     {blob + "y", len(blob), len(blob) + 1, false},
		"no head":               {"{]\n", 3, 3, false},
	} {
		var names []string
		err := readFrame(strings.NewReader(tt.text), tt.head, tt.size, func(name string, _ state.Value) error { names = append(names, name); return nil })
		if (err == nil) != tt.want || len(names) > 0 != tt.want || strings.HasPrefix(name, "a broken") && !strings.HasPrefix(err.Error(), `"a": `) {
			t.Errorf("%s: got %q and error %v, want it to be read: %v", name, names, err, tt.want)
		}
	}
	failed := errors.New("no")
	if err := readFrame(strings.NewReader(whole+document), len(whole), len(whole+document), func(string, state.Value) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("got %v, want the error of the function", err)
	}
}

// TestFrameAtItsBounds checks that a frame is read that has nothing, and that the largest head and the largest frame are not
// refused for their size.
func TestFrameAtItsBounds(t *testing.T) {
	t.Parallel()
	const empty = `{"values":[],"blobs":[]}`
	must.Do(t, readFrame(strings.NewReader(empty), len(empty), len(empty), nil))
	for _, size := range [][2]int{{0, 0}, {maxFrameHead, maxFrameHead}, {1, 2 * state.DefaultMaxBytes}} {
		err := readFrame(strings.NewReader("{"), size[0], size[1], nil)
		if _, limited := errors.AsType[*state.LimitError](err); err == nil || limited {
			t.Errorf("a head of %d bytes in a frame of %d: got error %v, want one of its content", size[0], size[1], err)
		}
	}
}
