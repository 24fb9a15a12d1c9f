//go:build linux

package kernel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

var errLine = errors.New("kernel: malformed line from the driver")

func parseLine(line []byte) (*link.Message, error) {
	if m := parseStream(line); m != nil {
		return m, nil
	}
	var m link.Message
	if err := json.Unmarshal(line, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", errLine, err)
	}
	if m.Type == "" || len(m.Content) == 0 || m.Content[0] != '{' {
		return nil, fmt.Errorf("%w: type %.40q with content that is not an object", errLine, m.Type)
	}
	return &m, nil
}

// parseStream parses a line of output in exactly the form that the driver writes. For such a line, it
// is faster than a general parser. When there are many lines, nearly all lines have this form. For
// any other line, parseStream returns nil.
func parseStream(line []byte) *link.Message {
	content, ok := bytes.CutPrefix(line, []byte(`{"type":"stream","content":`))
	if !ok {
		return nil
	}
	if content, ok = bytes.CutSuffix(content, []byte("}\n")); !ok {
		return nil
	}
	if _, _, err := jupyter.ParseStream(content); err != nil || content[0] != '{' {
		return nil
	}
	return &link.Message{Type: "stream", Content: bytes.Clone(content)}
}
