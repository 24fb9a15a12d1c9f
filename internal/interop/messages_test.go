//go:build linux

package interop

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	_ "github.com/e2bctl/e2bctl/internal/gen/filesystem" // the daemon's two services
	_ "github.com/e2bctl/e2bctl/internal/gen/process"
)

// procedure returns the procedure of the daemon that a path names, nil if none.
func procedure(path string) protoreflect.MethodDescriptor {
	service, method, found := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !found {
		return nil
	}
	one, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + method))
	if err != nil {
		return nil
	}
	descriptor, _ := one.(protoreflect.MethodDescriptor)
	return descriptor
}

// unknownInMessages returns the fields that the message type does not know in
// the body of a call by Connect's protocol: one message, or a stream of them.
func unknownInMessages(kind protoreflect.MessageDescriptor, header http.Header, body []byte) []string {
	format, streamed := strings.CutPrefix(header.Get("Content-Type"), "application/connect+")
	if !streamed {
		format = strings.TrimPrefix(format, "application/")
		return unknownInMessage(kind, format, header.Get("Content-Encoding"), body)
	}
	const prefix = 5 // a byte of flags and the length
	var unknown []string
	for len(body) >= prefix {
		size := prefix + int(binary.BigEndian.Uint32(body[1:prefix]))
		if len(body) < size {
			break // the client went away
		}
		encoding := ""
		if compressed := body[0]&1 != 0; compressed {
			encoding = header.Get("Connect-Content-Encoding")
		}
		unknown = append(unknown, unknownInMessage(kind, format, encoding, body[prefix:size])...)
		body = body[size:]
	}
	return unknown
}

func unknownInMessage(kind protoreflect.MessageDescriptor, format, encoding string, text []byte) []string {
	if encoding == "gzip" {
		plain, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			return []string{err.Error()}
		}
		if text, err = io.ReadAll(plain); err != nil {
			return []string{err.Error()}
		}
	}
	message := dynamicpb.NewMessage(kind)
	var err error
	switch format, _, _ = strings.Cut(format, ";"); format {
	case "json":
		err = protojson.Unmarshal(text, message) // unknown fields are an error
	case "proto":
		err = proto.Unmarshal(text, message)
	default:
		err = fmt.Errorf("the format %q", format)
	}
	if err != nil {
		return []string{err.Error()}
	}
	return unknownFields(message)
}

// unknownFields returns the numbers of the fields that a message and those in it
// have and their types do not.
func unknownFields(message protoreflect.Message) []string {
	var unknown []string
	if raw := message.GetUnknown(); len(raw) > 0 {
		unknown = append(unknown, fmt.Sprintf("fields of %s: % x", message.Descriptor().FullName(), []byte(raw)))
	}
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Message() == nil || field.IsMap() {
			return true
		}
		if !field.IsList() {
			unknown = append(unknown, unknownFields(value.Message())...)
			return true
		}
		for i := range value.List().Len() {
			unknown = append(unknown, unknownFields(value.List().Get(i).Message())...)
		}
		return true
	})
	return unknown
}

// keys returns the names of the fields of a JSON object, or nothing for other
// text.
func keys(text []byte) []string {
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(object))
}
