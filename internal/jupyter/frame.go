package jupyter

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// SubprotocolV1 is the websocket subprotocol of the second framing. A client offers this
// subprotocol. A server that supports the subprotocol selects it.
const SubprotocolV1 = "v1.kernel.websocket.jupyter.org"

// maxParts bounds the number of offsets in a frame of the peer. Real messages have far fewer offsets,
// and maxParts offsets cost little memory.
const maxParts = 1024

var errFrame = errors.New("jupyter: malformed frame")

// object is the JSON form of a message. In the default framing, it is a whole text frame, or the
// first part of a binary frame.
type object struct {
	Header   Header          `json:"header"`
	Parent   json.RawMessage `json:"parent_header"`
	Metadata json.RawMessage `json:"metadata"`
	Content  json.RawMessage `json:"content"`
	Channel  string          `json:"channel,omitempty"`
	Buffers  []struct{}      `json:"buffers"`
	// A server repeats the id and the type of the message at the top level.
	MsgID   string `json:"msg_id,omitempty"`
	MsgType string `json:"msg_type,omitempty"`
}

// Marshal returns a message in the default framing. isBinary reports whether the frame
// is binary, because the message has buffers.
func Marshal(m *Message) (frame []byte, isBinary bool, err error) {
	parent, err := marshalParent(m.Parent)
	if err != nil {
		return nil, false, err
	}
	text, err := json.Marshal(object{
		Header: m.Header, Parent: parent, Metadata: orEmpty(m.Metadata), Content: orEmpty(m.Content),
		Channel: m.Channel, Buffers: []struct{}{}, MsgID: m.Header.MsgID, MsgType: m.Header.MsgType,
	})
	if err != nil || len(m.Buffers) == 0 {
		return text, false, err
	}
	parts := append([][]byte{text}, m.Buffers...)
	offset := 4 * (1 + len(parts))
	frame = binary.BigEndian.AppendUint32(nil, uint32(len(parts)))
	for _, part := range parts {
		frame = binary.BigEndian.AppendUint32(frame, uint32(offset))
		offset += len(part)
	}
	for _, part := range parts {
		frame = append(frame, part...)
	}
	return frame, true, nil
}

// Unmarshal reads a frame of the default framing. The message refers to the frame's memory. Older
// clients send frames without a channel. Such a frame is for the shell channel.
func Unmarshal(frame []byte, isBinary bool) (*Message, error) {
	var buffers [][]byte
	if isBinary {
		parts, err := splitDefault(frame)
		if err != nil {
			return nil, err
		}
		frame, buffers = parts[0], parts[1:]
	}
	var o object
	// Buffers of the object are only placeholders; their content is ignored.
	if err := json.Unmarshal(frame, &struct {
		*object
		Buffers json.RawMessage `json:"buffers"`
	}{object: &o}); err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	m := &Message{Channel: o.Channel, Header: o.Header, Metadata: o.Metadata, Content: o.Content, Buffers: buffers}
	if m.Channel == "" {
		m.Channel = Shell
	}
	return m, unmarshalParent(o.Parent, &m.Parent)
}

func splitDefault(frame []byte) ([][]byte, error) {
	if len(frame) < 4 {
		return nil, fmt.Errorf("%w: %d bytes", errFrame, len(frame))
	}
	count := binary.BigEndian.Uint32(frame)
	if count < 1 || count > maxParts || len(frame) < int(4*(1+count)) {
		return nil, fmt.Errorf("%w: %d parts in %d bytes", errFrame, count, len(frame))
	}
	offsets := make([]uint64, 0, count+1)
	for i := range count {
		offsets = append(offsets, uint64(binary.BigEndian.Uint32(frame[4*(1+i):])))
	}
	return slices(frame, append(offsets, uint64(len(frame))), uint64(4*(1+count)))
}

// slices cuts a frame at its offsets. The offsets must not decrease, and must lie within the frame.
func slices(frame []byte, offsets []uint64, least uint64) ([][]byte, error) {
	parts := make([][]byte, 0, len(offsets)-1)
	for i, end := range offsets[1:] {
		start := offsets[i]
		if start < least || end < start || end > uint64(len(frame)) {
			return nil, fmt.Errorf("%w: part %d is [%d:%d] of %d bytes", errFrame, i, start, end, len(frame))
		}
		parts = append(parts, frame[start:end:end])
	}
	return parts, nil
}

// MarshalV1 returns a message in the framing of [SubprotocolV1]. A frame of this framing is always
// binary.
func MarshalV1(m *Message) ([]byte, error) {
	header, err := json.Marshal(m.Header)
	if err != nil {
		return nil, err
	}
	parent, err := marshalParent(m.Parent)
	if err != nil {
		return nil, err
	}
	parts := append([][]byte{[]byte(m.Channel), header, parent, orEmpty(m.Metadata), orEmpty(m.Content)}, m.Buffers...)
	offset := 8 * (2 + len(parts))
	size := offset
	for _, part := range parts {
		size += len(part)
	}
	frame := binary.LittleEndian.AppendUint64(make([]byte, 0, size), uint64(len(parts)+1))
	for _, part := range parts {
		frame = binary.LittleEndian.AppendUint64(frame, uint64(offset))
		offset += len(part)
	}
	frame = binary.LittleEndian.AppendUint64(frame, uint64(offset))
	for _, part := range parts {
		frame = append(frame, part...)
	}
	return frame, nil
}

// UnmarshalV1 reads a frame of [SubprotocolV1]. The message refers to the frame's memory.
// UnmarshalV1 does not check that Metadata and Content are JSON. The code that reads these fields
// makes this check.
func UnmarshalV1(frame []byte) (*Message, error) {
	if len(frame) < 8 {
		return nil, fmt.Errorf("%w: %d bytes", errFrame, len(frame))
	}
	count := binary.LittleEndian.Uint64(frame)
	if count < 6 || count > maxParts || uint64(len(frame)) < 8*(1+count) {
		return nil, fmt.Errorf("%w: %d offsets in %d bytes", errFrame, count, len(frame))
	}
	offsets := make([]uint64, count)
	for i := range offsets {
		offsets[i] = binary.LittleEndian.Uint64(frame[8*(1+i):])
	}
	parts, err := slices(frame, offsets, 8*(1+count))
	if err != nil {
		return nil, err
	}
	m := &Message{Channel: string(parts[0]), Metadata: json.RawMessage(parts[3]), Content: json.RawMessage(parts[4])}
	if len(parts) > 5 {
		m.Buffers = parts[5:]
	}
	if m.Channel == "" {
		m.Channel = Shell
	}
	if err := json.Unmarshal(parts[1], &m.Header); err != nil {
		return nil, fmt.Errorf("%w: header: %w", errFrame, err)
	}
	return m, unmarshalParent(parts[2], &m.Parent)
}

func marshalParent(h Header) (json.RawMessage, error) {
	if h == (Header{}) {
		return json.RawMessage("{}"), nil
	}
	return json.Marshal(h)
}

func unmarshalParent(raw json.RawMessage, h *Header) error {
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, h); err != nil {
		return fmt.Errorf("%w: parent header: %w", errFrame, err)
	}
	return nil
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}
