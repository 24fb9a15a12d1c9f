// Package boundproto reads Protocol Buffers that come from untrusted sources: two bytes can encode
// a message that takes hundreds of bytes when it is decoded.
package boundproto

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Limit makes a client of Connect refuse an answer with more messages than the given number.
// Messages inside other messages are counted, too.
func Limit(messages int) connect.ClientOption {
	return connect.WithCodec(codec{messages})
}

// codec is a [connect.Codec] for the binary form of Protocol Buffers that limits the number of
// messages.
type codec struct{ messages int }

func (codec) Name() string { return "proto" }

func (codec) Marshal(message any) ([]byte, error) {
	m, err := protoMessage(message)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(m)
}

// MarshalAppend appends the encoded message to a slice. With this method, Connect need not copy the
// message.
func (codec) MarshalAppend(to []byte, message any) ([]byte, error) {
	m, err := protoMessage(message)
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{}.MarshalAppend(to, m)
}

func (c codec) Unmarshal(data []byte, message any) error {
	m, err := protoMessage(message)
	if err != nil {
		return err
	}
	if left := spend(data, m.ProtoReflect().Descriptor(), c.messages); left < 0 {
		return fmt.Errorf("the answer has more than %d messages", c.messages)
	}
	return proto.Unmarshal(data, m)
}

func protoMessage(message any) (proto.Message, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message of Protocol Buffers", message)
	}
	return m, nil
}

// spend counts the messages and other repeated values in a message and returns left minus that
// count, which is negative if there are too many. It ignores malformed data, because the decoder
// finds that later.
func spend(data []byte, message protoreflect.MessageDescriptor, left int) int {
	for len(data) > 0 && left >= 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return left
		}
		data = data[n:]
		field := message.Fields().ByNumber(number)
		n = protowire.ConsumeFieldValue(number, kind, data)
		if n < 0 {
			return left
		}
		if field != nil && (field.Message() != nil || field.IsList()) {
			left--
		}
		if field != nil && field.Message() != nil && kind == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(data)
			left = spend(inner, field.Message(), left)
		}
		data = data[n:]
	}
	return left
}
