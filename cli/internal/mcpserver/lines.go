package mcpserver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// checkedLines reads the messages of a client, one per line. If a line is not a message,
// checkedLines answers with an error, and does not pass the line on. For such a line the library
// would end the connection, and thereby the sandbox of the session.
type checkedLines struct {
	io.Closer
	in   *bufio.Reader
	out  io.Writer // receives the answers to lines that are not messages
	rest []byte    // the unread bytes of the current line
}

// Read implements [io.Reader].
func (c *checkedLines) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		line, err := c.next()
		if len(bytes.TrimSpace(line)) > 0 {
			if wrong := checkLine(line); wrong == nil {
				c.rest = line
			} else if err := c.refuse(wrong); err != nil {
				return 0, err
			}
		}
		if err != nil && len(c.rest) == 0 {
			return 0, err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next returns the next line with its newline. If the line is too long, next returns its beginning,
// which is not a message.
func (c *checkedLines) next() (line []byte, err error) {
	for {
		part, err := c.in.ReadSlice('\n')
		if len(line) <= sdk.DefaultMaxLineLength {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// checkLine returns nil if line is a message, or a batch of messages, which versions of the
// protocol before 2025-06-18 allow. Otherwise it returns an error.
func checkLine(line []byte) error {
	if len(line) > sdk.DefaultMaxLineLength {
		return fmt.Errorf("the line has more than %d MiB", sdk.DefaultMaxLineLength>>20)
	}
	messages := []json.RawMessage{line}
	if bytes.HasPrefix(bytes.TrimSpace(line), []byte("[")) {
		messages = nil // unmarshalling would write into line
		if err := json.Unmarshal(line, &messages); err != nil {
			return err
		}
		if len(messages) == 0 {
			return errors.New("the batch is empty")
		}
	}
	for _, message := range messages {
		if _, err := jsonrpc.DecodeMessage(message); err != nil {
			return err
		}
	}
	return nil
}

// refuse sends an error as the answer to a line that is not a message. The answer has no id,
// because the id of such a line is unknown.
func (c *checkedLines) refuse(wrong error) error {
	answer, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": nil,
		"error": map[string]any{"code": jsonrpc.CodeParseError, "message": "the line is no message of JSON-RPC: " + message(wrong)},
	})
	if err != nil {
		return err
	}
	_, err = c.out.Write(append(answer, '\n'))
	return err
}

// oneAtATime is a writer that performs concurrent calls of Write one after another.
type oneAtATime struct {
	io.WriteCloser
	mu sync.Mutex
}

// Write implements [io.Writer].
func (o *oneAtATime) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.WriteCloser.Write(p)
}
