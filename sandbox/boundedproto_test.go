package sandbox

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
)

// Two bytes can hold an entry of a listing.
func TestForeignMessagesAreBounded(t *testing.T) { //nolint:paralleltest // it measures memory
	const size = 7 << 20
	entry := []byte{0x0a, 0} // field 1 of ListDirResponse, empty
	metadata, err := proto.Marshal(&filesystem.ListDirResponse{Entries: []*filesystem.EntryInfo{{Metadata: map[string]string{"": ""}}}})
	if err != nil {
		t.Fatal(err)
	}
	codec := protoCodec{maxListed}
	for name, data := range map[string][]byte{
		"entries":  bytes.Repeat(entry, size/len(entry)),
		"metadata": bytes.Repeat(metadata, size/len(metadata)),
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			took := allocated(func() { err = codec.Unmarshal(data, &filesystem.ListDirResponse{}) })
			if err == nil || !strings.Contains(err.Error(), "more than") || took > 1<<20 {
				t.Errorf("%v after %d KiB", err, took>>10)
			}
		})
	}
}

func TestBoundedProto(t *testing.T) {
	t.Parallel()
	sent := &filesystem.ListDirResponse{Entries: []*filesystem.EntryInfo{
		{Name: "a", Path: "/a", Metadata: map[string]string{"k": "v", "l": "w"}}, {Name: "b"},
	}}
	codec := protoCodec{4} // two entries and two metadata
	data, err := codec.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	appended, err := codec.MarshalAppend([]byte("x"), sent)
	if err != nil || len(appended) != 1+len(data) {
		t.Errorf("appended: %q, %v", appended, err)
	}
	var got filesystem.ListDirResponse
	if err := codec.Unmarshal(data, &got); err != nil || !proto.Equal(sent, &got) {
		t.Errorf("%v, %v", &got, err)
	}
	if err := (protoCodec{3}).Unmarshal(data, &got); err == nil {
		t.Error("more messages than are allowed were read")
	}
	for _, broken := range [][]byte{data[:len(data)-1], {0x0a}, {0x0a, 5}, {0xff}} {
		if err := codec.Unmarshal(broken, &got); err == nil {
			t.Errorf("%x was read", broken)
		}
	}
	if err := codec.Unmarshal(data, "no message"); err == nil {
		t.Error("a string was read into")
	}
}
