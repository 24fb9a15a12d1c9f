package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/boundjson"
	"github.com/e2bctl/e2bctl/internal/memtest"
	"github.com/e2bctl/e2bctl/state"
)

// TestForeignJSONIsBounded checks that JSON from a sandbox takes no more memory than its
// length, however many values it packs into that.
func TestForeignJSONIsBounded(t *testing.T) { //nolint:paralleltest // it measures memory
	const size = 7 << 20
	many := func(value string) string {
		return strings.TrimSuffix(strings.Repeat(value+",", size/(len(value)+1)), ",")
	}
	frame := func(head string) func() error {
		return func() error {
			return readFrame(strings.NewReader(head), len(head), len(head), func(string, state.Value) error { return nil })
		}
	}
	calls := []byte(`{"calls":[` + many("[]") + `]}`)
	for name, read := range map[string]func() error{
		"frame of arrays":  frame(`{"values":[` + many("[]") + `]}`),
		"frame of nulls":   frame(`{"values":[` + many("null") + `]}`),
		"frame of blobs":   frame(`{"blobs":[` + many("[]") + `]}`),
		"frame of strings": frame(`{"values":[` + many(`["x",0]`) + `]}`),
		"tool calls": func() error {
			_, err := (&stepCalls{}).exchange(t.Context(), calls)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			took := memtest.Allocated(func() { err = read() })
			if _, ok := errors.AsType[*boundjson.TooManyError](err); !ok || took > size+1<<20 {
				t.Errorf("%v after %d KiB, for %d KiB of JSON, want a *boundjson.TooManyError after at most 1 MiB more", err, took>>10, size>>10)
			}
		})
	}
	// As many values as are allowed; most of this becomes garbage at once.
	nulls := `{"values":[` + strings.TrimSuffix(strings.Repeat("null,", maxFrameValues-2), ",") + `]}`
	if took := memtest.Allocated(func() { _ = frame(nulls)() }); took > 160<<20 {
		t.Errorf("a head of %d values takes %d MiB, want at most 160", maxFrameValues, took>>20)
	}
}

// TestMuchForeignJSON checks that the most values that a frame or a display may contain
// are still accepted.
func TestMuchForeignJSON(t *testing.T) {
	t.Parallel()
	const variables = 100_000
	var head, documents bytes.Buffer
	for i := range variables {
		document := fmt.Sprintf(`{"v":1,"value":%d}`, i)
		fmt.Fprintf(&head, `,["variable_%d",%d]`, i, len(document))
		documents.WriteString(document)
	}
	text := `{"values":[` + head.String()[1:] + `],"blobs":[]}`
	n := 0
	r := &countingReader{Reader: strings.NewReader(text + documents.String())}
	err := readFrame(r, len(text), len(text)+documents.Len(), func(string, state.Value) error { n++; return nil })
	if err != nil || n != variables {
		t.Errorf("%d variables, %v, want %d and no error", n, err, variables)
	}
	// Each is a read of a download: there must not be one for each variable.
	if most := documents.Len()>>14 + 3; r.reads > most {
		t.Errorf("%d reads of %d KiB, want at most %d", r.reads, documents.Len()>>10, most)
	}
}

// countingReader counts the reads.
type countingReader struct {
	io.Reader
	reads int
}

func (r *countingReader) Read(p []byte) (int, error) {
	r.reads++
	return r.Reader.Read(p)
}
