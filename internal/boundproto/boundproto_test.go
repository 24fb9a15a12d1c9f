package boundproto

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/memtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// Two bytes can hold an entry of a listing.
func TestForeignMessagesAreBounded(t *testing.T) { //nolint:paralleltest // it measures memory
	const size = 7 << 20
	entry := []byte{0x0a, 0} // field 1 of ListDirResponse, empty
	metadata, err := proto.Marshal(&filesystem.ListDirResponse{Entries: []*filesystem.EntryInfo{{Metadata: map[string]string{"": ""}}}})
	must.Do(t, err)
	limited := codec{1_000_000}
	for name, data := range map[string][]byte{
		"entries":  bytes.Repeat(entry, size/len(entry)),
		"metadata": bytes.Repeat(metadata, size/len(metadata)),
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			took := memtest.Allocated(func() { err = limited.Unmarshal(data, &filesystem.ListDirResponse{}) })
			if err == nil || !strings.Contains(err.Error(), "more than") || took > 1<<20 {
				t.Errorf("%v after %d KiB", err, took>>10)
			}
		})
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	sent := &filesystem.ListDirResponse{Entries: []*filesystem.EntryInfo{
		{Name: "a", Path: "/a", Metadata: map[string]string{"k": "v", "l": "w"}}, {Name: "b"},
	}}
	limited := codec{4} // two entries and two metadata
	data, err := limited.Marshal(sent)
	must.Do(t, err)
	appended, err := limited.MarshalAppend([]byte("x"), sent)
	if err != nil || len(appended) != 1+len(data) {
		t.Errorf("appended: %q, %v", appended, err)
	}
	var got filesystem.ListDirResponse
	if err := limited.Unmarshal(data, &got); err != nil || !proto.Equal(sent, &got) {
		t.Errorf("%v, %v", &got, err)
	}
	if err := (codec{3}).Unmarshal(data, &got); err == nil {
		t.Error("more messages than are allowed were read")
	}
	for _, broken := range [][]byte{data[:len(data)-1], {0x0a}, {0x0a, 5}, {0xff}} {
		if err := limited.Unmarshal(broken, &got); err == nil {
			t.Errorf("%x was read", broken)
		}
	}
	_, marshalErr := limited.Marshal("no message")
	_, appendErr := limited.MarshalAppend(nil, "no message")
	for _, err := range []error{limited.Unmarshal(data, "no message"), marshalErr, appendErr} {
		if err == nil || err.Error() != "string is no message of Protocol Buffers" {
			t.Errorf("got %v for a string, want that it is no message", err)
		}
	}
}

// TestSpend checks that messages and repeated values are counted, and nothing else is.
func TestSpend(t *testing.T) {
	t.Parallel()
	marshal := func(m proto.Message) []byte {
		data, err := proto.Marshal(m)
		must.Do(t, err)
		return data
	}
	entry := marshal(&filesystem.EntryInfo{Metadata: map[string]string{"": ""}})
	for name, test := range map[string]struct {
		data []byte
		of   proto.Message
		want int
	}{
		"nothing":               {nil, &filesystem.ListDirResponse{}, 0},
		"texts":                 {marshal(&process.ProcessConfig{Cmd: "a", Args: []string{"", "b"}}), &process.ProcessConfig{}, 2},
		"a map":                 {marshal(&process.ProcessConfig{Envs: map[string]string{"a": "", "b": ""}}), &process.ProcessConfig{}, 2},
		"an unknown field":      {[]byte{0xfa, 0x01, 2, 0x0a, 0, 0x0a, 0}, &filesystem.ListDirResponse{}, 1},
		"a number for an entry": {append([]byte{0x08, byte(len(entry))}, entry...), &filesystem.ListDirResponse{}, 1},
		"an entry":              {append([]byte{0x0a, byte(len(entry))}, entry...), &filesystem.ListDirResponse{}, 2},
	} {
		if got := 9 - spend(test.data, test.of.ProtoReflect().Descriptor(), 9); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
}

// TestSpendEnds checks that the count ends with the first message too many, also inside of a message, and that it includes
// the last message that is allowed.
func TestSpendEnds(t *testing.T) {
	t.Parallel()
	inner, err := proto.Marshal(&filesystem.EntryInfo{Metadata: map[string]string{"a": "", "b": "", "c": "", "d": ""}})
	must.Do(t, err)
	of := (&filesystem.ListDirResponse{}).ProtoReflect().Descriptor()
	for name, test := range map[string]struct {
		data  []byte
		count int
	}{
		"entries":    {bytes.Repeat([]byte{0x0a, 0}, 5), 5},
		"an entry":   {append([]byte{0x0a, byte(len(inner))}, inner...), 5},
		"no entries": {nil, 0},
	} {
		for limit := range 2 + test.count {
			if got, want := spend(test.data, of, limit), max(limit-test.count, -1); got != want {
				t.Errorf("%s, limit %d: got %d, want %d", name, limit, got, want)
			}
		}
	}
}
