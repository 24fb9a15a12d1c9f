package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/boundjson"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/memtest"
	"github.com/e2bctl/e2bctl/sandbox/chart"
)

// TestForeignJSONIsBounded checks that JSON of a sandbox takes memory in proportion
// to its length, however many values it has.
func TestForeignJSONIsBounded(t *testing.T) { //nolint:paralleltest // it measures memory
	const size = 7 << 20
	many := func(value string) string {
		return strings.TrimSuffix(strings.Repeat(value+",", size/(len(value)+1)), ",")
	}
	message := func(kind, content string) func() error {
		m := &jupyter.Message{Header: jupyter.Header{MsgType: kind}, Content: json.RawMessage(content)}
		return func() error { return newCollector(&RunCodeParams{}).message(m) }
	}
	line := func(text string) func() error {
		read := []byte(text)
		return func() error { return newCollector(&RunCodeParams{}).line(read) }
	}
	var keys bytes.Buffer
	for i := 0; keys.Len() < size; i++ {
		fmt.Fprintf(&keys, `"%x":1,`, i)
	}
	members := strings.TrimSuffix(keys.String(), ",")
	figure := Result{Data: map[string]json.RawMessage{chart.MIMEType: json.RawMessage(`{"type":"line","elements":[` + many("{}") + `]}`)}}
	for name, read := range map[string]func() error{
		"MIME types": message("display_data", `{"data":{`+members+`}}`),
		"traceback":  message("error", `{"traceback":[`+many(`""`)+`]}`),
		"chart": func() error {
			return figure.Chart().(*chart.Unknown).Err
		},
		"line":  line(`{"type":"result",` + members + `}`),
		"extra": line(`{"type":"result","extra":{` + members + `}}`),
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			took := memtest.Allocated(func() { err = read() })
			if _, ok := errors.AsType[*boundjson.TooManyError](err); !ok || took > size+1<<20 {
				t.Errorf("%v after %d KiB, for %d KiB of JSON", err, took>>10, size>>10)
			}
		})
	}
}

// TestMuchForeignJSON checks that the data of a large display is still accepted.
func TestMuchForeignJSON(t *testing.T) {
	t.Parallel()
	// A plot's data is one value, however much it contains.
	plot := `{"data":{"application/json":[` + strings.TrimSuffix(strings.Repeat("1.5,", 1<<20), ",") + `]}}`
	c := newCollector(&RunCodeParams{})
	if err := c.message(&jupyter.Message{Header: jupyter.Header{MsgType: "display_data"}, Content: json.RawMessage(plot)}); err != nil {
		t.Error(err)
	}
}
