package sandbox

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/e2bctl/e2bctl/state"
)

// frameHead is one entry of a frame's first line: name, size and, on the way
// up, hash of a document. The documents follow that line.
type frameHead struct {
	name string
	size int
	hash string
}

func (h frameHead) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.name, h.size, h.hash}) }

func (h *frameHead) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&h.name, &h.size})
}

func frameOf(entries []state.Entry) (io.Reader, error) {
	heads := make([]frameHead, len(entries))
	documents := make([]io.Reader, 1, 1+len(entries))
	for i, entry := range entries {
		doc := entry.Value.Bytes()
		heads[i] = frameHead{entry.Name, len(doc), hex.EncodeToString(entry.Hash[:])}
		documents = append(documents, bytes.NewReader(doc))
	}
	head, err := json.Marshal(heads)
	if err != nil {
		return nil, err
	}
	documents[0] = bytes.NewReader(append(head, '\n'))
	return io.MultiReader(documents...), nil
}

var errFrame = errors.New("what the kernel sent is malformed")

func readFrame(frame []byte, each func(name string, v state.Value) error) error {
	head, rest, ok := bytes.Cut(frame, []byte("\n"))
	var heads []frameHead
	if !ok {
		return errFrame
	}
	if err := json.Unmarshal(head, &heads); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	for _, h := range heads {
		if h.size < 0 || h.size > len(rest) {
			return errFrame
		}
		// Cloned: a small value must not keep the frame's memory.
		value, err := state.Parse(bytes.Clone(rest[:h.size]), state.Limits{})
		if err != nil {
			return fmt.Errorf("%.64q: %w", h.name, err)
		}
		if err := each(h.name, value); err != nil {
			return err
		}
		rest = rest[h.size:]
	}
	if len(rest) > 0 {
		return errFrame
	}
	return nil
}
