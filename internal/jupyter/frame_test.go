package jupyter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

func sample() *Message {
	return &Message{
		Channel:  IOPub,
		Header:   NewHeader("stream", "s", "e2b"),
		Parent:   Header{MsgID: "p", MsgType: "execute_request", Session: "s", Version: "5.3"},
		Metadata: []byte(`{}`),
		Content:  []byte(`{"name":"stdout","text":"é\u2028\n"}`),
	}
}

func TestFramesRoundTrip(t *testing.T) {
	t.Parallel()
	withBuffers := sample()
	withBuffers.Buffers = [][]byte{{1, 2, 3}, {}, {4}}
	noParent := sample()
	noParent.Parent = Header{}
	for name, want := range map[string]*Message{"plain": sample(), "buffers": withBuffers, "no parent": noParent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			frame, isBinary, err := Marshal(want)
			must.Do(t, err)
			if isBinary != (want.Buffers != nil) {
				t.Errorf("binary = %v, want %v", isBinary, want.Buffers != nil)
			}
			got, err := Unmarshal(frame, isBinary)
			must.Do(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("default framing (-want +got):\n%s", diff)
			}
			frame, err = MarshalV1(want)
			must.Do(t, err)
			got, err = UnmarshalV1(frame)
			must.Do(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("v1 framing (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHeaders checks each field of a new header.
func TestHeaders(t *testing.T) {
	t.Parallel()
	first, second := NewHeader("stream", "s", "e2b"), NewHeader("stream", "s", "e2b")
	if first.MsgID == "" || first.MsgID == second.MsgID {
		t.Errorf("two headers have the ids %q and %q", first.MsgID, second.MsgID)
	}
	if at, err := time.Parse(time.RFC3339Nano, string(first.Date)); err != nil || time.Since(at) > time.Hour {
		t.Errorf("the date is %q, want now: %v", first.Date, err)
	}
	first.MsgID, first.Date = "", ""
	if want := (Header{MsgType: "stream", Session: "s", Username: "e2b", Version: ProtocolVersion}); first != want {
		t.Errorf("got %+v, want %+v", first, want)
	}
}

// TestFramesOfBadMessages checks that a message whose parts are not JSON has an error and no frame.
func TestFramesOfBadMessages(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Message){
		"content":              func(m *Message) { m.Content = []byte("{") },
		"metadata":             func(m *Message) { m.Metadata = []byte("x") },
		"content with buffers": func(m *Message) { m.Content, m.Buffers = []byte("{"), [][]byte{{1}} },
	} {
		m := sample()
		change(m)
		if frame, _, err := Marshal(m); err == nil || len(frame) > 0 {
			t.Errorf("bad %s: got %q and %v, want an error", name, frame, err)
		}
	}
}

// TestBadHeaders checks that no message is read whose header, or whose parent's, is no JSON.
func TestBadHeaders(t *testing.T) {
	t.Parallel()
	m := sample()
	m.Parent.MsgID = "parent"
	v1, err := MarshalV1(m)
	must.Do(t, err)
	text, _, err := Marshal(m)
	must.Do(t, err)
	for _, id := range []string{m.Header.MsgID, m.Parent.MsgID} {
		good, bad := []byte(`"`+id+`"`), []byte(` `+id+` `)
		if m, err := UnmarshalV1(bytes.Replace(v1, good, bad, 1)); !errors.Is(err, errFrame) {
			t.Errorf("a bad header with the id %s: got %+v and error %v in the framing v1, want %v", id, m, err, errFrame)
		}
		if m, err := Unmarshal(bytes.Replace(text, good, bad, 1), false); !errors.Is(err, errFrame) {
			t.Errorf("a bad header with the id %s: got %+v and error %v, want %v", id, m, err, errFrame)
		}
	}
}

// TestDatesOfAnyForm reads headers whose date is not ISO 8601, as Jupyter's own
// gateway client sends them.
func TestDatesOfAnyForm(t *testing.T) {
	t.Parallel()
	for date, want := range map[string]Date{
		`"2026-01-02T03:04:05Z"`: "2026-01-02T03:04:05Z", `1763710000.25`: "", `null`: "", `{"a":1}`: "",
	} {
		header := `{"msg_id":"1","msg_type":"execute_request","date":` + date + `}`
		m, err := Unmarshal([]byte(`{"header":`+header+`,"parent_header":`+header+`}`), false)
		if err != nil {
			t.Errorf("a date of %s: %v", date, err)
			continue
		}
		if m.Header.Date != want || m.Parent.Date != want || m.Header.MsgID != "1" {
			t.Errorf("a date of %s gave %+v, want the date %v in both headers and the id %q", date, m.Header, want, "1")
		}
	}
}

func TestFrameWithoutChannelIsForTheShell(t *testing.T) {
	t.Parallel()
	m, err := Unmarshal([]byte(`{"header":{"msg_id":"1","msg_type":"execute_request"},"parent_header":{},"metadata":{},"content":{},"buffers":[{},{}]}`), false)
	must.Do(t, err)
	if m.Channel != Shell {
		t.Errorf("channel = %q, want %q", m.Channel, Shell)
	}
}

func FuzzUnmarshal(f *testing.F) {
	text, _, _ := Marshal(sample())
	f.Add(text)
	withBuffers := sample()
	withBuffers.Buffers = [][]byte{{1}}
	bin, _, _ := Marshal(withBuffers)
	f.Add(bin)
	v1, _ := MarshalV1(sample())
	f.Add(v1)
	f.Add(binary.LittleEndian.AppendUint64(nil, 1<<63))
	f.Fuzz(func(_ *testing.T, frame []byte) {
		// No frame causes a panic, or uses more memory than its own length.
		_, _ = Unmarshal(frame, false)
		_, _ = Unmarshal(frame, true)
		_, _ = UnmarshalV1(frame)
	})
}
