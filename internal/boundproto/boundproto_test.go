package boundproto

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
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
	if err := limited.Unmarshal(data, "no message"); err == nil {
		t.Error("a string was read into")
	}
}
