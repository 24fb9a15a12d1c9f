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

// checkedLines reads the messages of a client, one a line. A line that is no message is answered with an error and
// left out: the library would end the connection, and with it the sandbox of the session.
type checkedLines struct {
	io.Closer
	in   *bufio.Reader
	out  io.Writer // takes answers to lines that are no messages
	rest []byte    // the rest of the line that is being read
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

// next returns the next line with its end. If the line is too long, next returns its beginning,
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

// checkLine returns an error unless line is a message, or a batch of them, as protocols before 2025-06-18 have.
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

// refuse answers a line that is no message. Nobody knows its id, so the answer has none.
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

// oneAtATime lets one Write after the other go on.
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
