package cmdtest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	// The messages of the daemon in a sandbox.
	_ "github.com/e2bctl/e2bctl/internal/gen/filesystem"
	_ "github.com/e2bctl/e2bctl/internal/gen/process"
)

// methodOf returns the method of the daemon that a request calls, or nil.
func methodOf(path string) protoreflect.MethodDescriptor {
	name := strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", ".")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil
	}
	method, _ := found.(protoreflect.MethodDescriptor)
	return method
}

// messageOf returns an empty message of a type.
func messageOf(of protoreflect.MessageDescriptor) (proto.Message, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
	if err != nil {
		return nil, err
	}
	return kind.New().Interface(), nil
}

// readable returns the body of a call as JSON.
func readable(method protoreflect.MethodDescriptor, body []byte) (string, error) {
	message, err := messageOf(method.Input())
	if err != nil {
		return "", err
	}
	if method.IsStreamingServer() && len(body) >= 5 {
		body = body[5:] // behind the flags and the length
	}
	if err := proto.Unmarshal(body, message); err != nil {
		return "", err
	}
	text, err := protojson.Marshal(message)
	var plain bytes.Buffer
	if err == nil {
		err = json.Compact(&plain, text) // protojson adds blanks at random
	}
	return plain.String(), err
}

// answerCall answers a call: with a message, with an array of the messages of a stream, or with an error as JSON.
func answerCall(w http.ResponseWriter, method protoreflect.MethodDescriptor, status int, body string) error {
	switch {
	case status != http.StatusOK && method.IsStreamingServer():
		w.Header().Set("Content-Type", "application/connect+proto")
		_, err := w.Write(envelope(2, []byte(`{"error":`+body+`}`)))
		return err
	case status != http.StatusOK:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, err := w.Write([]byte(body))
		return err
	}
	var messages []json.RawMessage
	if !method.IsStreamingServer() {
		messages = append(messages, json.RawMessage(body))
	} else if err := json.Unmarshal([]byte(body), &messages); err != nil {
		return fmt.Errorf("%s: %w", body, err)
	}
	var whole []byte
	for _, text := range messages {
		message, err := messageOf(method.Output())
		if err != nil {
			return err
		}
		if err := protojson.Unmarshal(text, message); err != nil {
			return err
		}
		data, err := proto.Marshal(message)
		if err != nil {
			return err
		}
		if method.IsStreamingServer() {
			data = envelope(0, data)
		}
		whole = append(whole, data...)
	}
	kind := "application/proto"
	if method.IsStreamingServer() {
		kind, whole = "application/connect+proto", append(whole, envelope(2, []byte("{}"))...)
	}
	w.Header().Set("Content-Type", kind)
	_, err := w.Write(whole)
	return err
}

// envelope returns one message of a stream.
func envelope(flags byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data))), data...)
}
