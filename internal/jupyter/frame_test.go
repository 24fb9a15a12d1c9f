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
			if must.Do(t, err); cap(frame) != len(frame) {
				t.Errorf("a frame of %d bytes has the memory of %d", len(frame), cap(frame))
			}
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

// TestDefaultFrame checks each field of a frame, also those that only other programs read.
func TestDefaultFrame(t *testing.T) {
	t.Parallel()
	frame, _, err := Marshal(&Message{Channel: IOPub, Header: Header{MsgID: "1", MsgType: "status", Session: "s", Username: "u", Date: "d", Version: "5.3"}})
	must.Do(t, err)
	want := `{"header":{"msg_id":"1","msg_type":"status","session":"s","username":"u","date":"d","version":"5.3"},` +
		`"parent_header":{},"metadata":{},"content":{},"channel":"iopub","buffers":[],"msg_id":"1","msg_type":"status"}`
	if string(frame) != want {
		t.Errorf("got %s, want %s", frame, want)
	}
}

// numbers returns a frame that begins with numbers, in the default framing or that of [SubprotocolV1].
func numbers(v1 bool, numbers ...uint64) (frame []byte) {
	for _, n := range numbers {
		if v1 {
			frame = binary.LittleEndian.AppendUint64(frame, n)
		} else {
			frame = binary.BigEndian.AppendUint32(frame, uint32(n))
		}
	}
	return frame
}

// TestBoundsOfFrames checks each bound of a binary frame, one below, at and one above.
func TestBoundsOfFrames(t *testing.T) {
	t.Parallel()
	const object, header = `{"header":{"msg_id":"1"}}`, `{"msg_id":"1"}`
	many := func(v1 bool, count, first int, text string) []byte {
		all := []uint64{uint64(count)}
		width := 4
		if v1 {
			width = 8
		}
		start := uint64(width * (1 + count))
		for i := range count {
			if i > first {
				all = append(all, start+uint64(len(text)))
			} else {
				all = append(all, start)
			}
		}
		return append(numbers(v1, all...), text...)
	}
	for name, tt := range map[string]struct {
		v1      bool
		frame   []byte
		buffers int // -1: an error
	}{
		"empty":                      {false, nil, -1},
		"three bytes":                {false, []byte{0, 0, 0}, -1},
		"no part":                    {false, numbers(false, 0), -1},
		"cut in the offsets":         {false, numbers(false, 1)[:4], -1},
		"one part":                   {false, many(false, 1, 0, object), 0},
		"all parts":                  {false, many(false, maxParts, 0, object), maxParts - 1},
		"a part too many":            {false, many(false, maxParts+1, 0, object), -1},
		"a part in the offsets":      {false, append(numbers(false, 1, 7), object...), -1},
		"a part after the frame":     {false, append(numbers(false, 2, 12, uint64(13+len(object))), object...), -1},
		"a part of decreasing size":  {false, append(numbers(false, 3, 16, uint64(16+len(object)), uint64(15+len(object))), object...), -1},
		"a part that is empty":       {false, append(numbers(false, 2, 12, uint64(12+len(object))), object...), 1},
		"v1, empty":                  {true, nil, -1},
		"v1, seven bytes":            {true, make([]byte, 7), -1},
		"v1, no offset":              {true, numbers(true, 0), -1},
		"v1, five offsets":           {true, many(true, 5, 1, header), -1},
		"v1, six offsets":            {true, many(true, 6, 1, header), 0},
		"v1, cut in the offsets":     {true, many(true, 6, 1, "")[:55], -1},
		"v1, all offsets":            {true, many(true, maxParts, 1, header), maxParts - 6},
		"v1, an offset too many":     {true, many(true, maxParts+1, 1, header), -1},
		"v1, a part in the offsets":  {true, append(numbers(true, 6, 55, 56, 70, 70, 70, 70), header...), -1},
		"v1, a part after the frame": {true, append(numbers(true, 6, 56, 56, 70, 70, 70, 71), header...), -1},
		"v1, a negative part":        {true, append(numbers(true, 6, 56, 56, 70, 69, 70, 70), header...), -1},
	} {
		m, err := Unmarshal(tt.frame, true)
		if tt.v1 {
			m, err = UnmarshalV1(tt.frame)
		}
		switch {
		case tt.buffers < 0 && !errors.Is(err, errFrame):
			t.Errorf("%s: got %+v and error %v, want %v", name, m, err, errFrame)
		case tt.buffers < 0:
		case err != nil || m.Header.MsgID != "1" || m.Channel != Shell || len(m.Buffers) != tt.buffers:
			t.Errorf("%s: got %+v and error %v, want %d buffers", name, m, err, tt.buffers)
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
