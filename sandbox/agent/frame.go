package agent

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/e2bctl/e2bctl/internal/boundjson"
	"github.com/e2bctl/e2bctl/state"
)

// frameHead is the first line of a frame. After this line, the frame contains the documents of the
// values, and then the blobs to which the documents refer.
type frameHead struct {
	Values []frameValue `json:"values"`
	Blobs  []framePart  `json:"blobs"`
	// Held lists blobs that variables of the kernel already contain, each with the name of such a
	// variable. The frame does not contain these blobs. Held is set only in frames to the kernel.
	Held [][2]string `json:"held"`
}

// frameValue describes a value in a frame to the kernel. It contains the name of the value, the
// size of the value's document, the hash of the value, and the value's size including blobs.
type frameValue struct {
	name  string
	size  int
	hash  string
	total int
}

func (v frameValue) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{v.name, v.size, v.hash, v.total})
}

// framePart describes a part of a frame. For a blob, it contains the hash and the size of the blob.
// In frames from the kernel, it may describe a value instead. It then contains the name of the
// value in place of the hash.
type framePart struct {
	name string
	size int
}

func (p framePart) MarshalJSON() ([]byte, error) { return json.Marshal([]any{p.name, p.size}) }

func (p *framePart) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&p.name, &p.size})
}

// frameOf returns a frame of entries. The frame contains each blob once. held maps blobs that the
// kernel already has to names of variables. For such a blob, the frame contains the name of the
// variable instead of the blob.
func frameOf(entries []state.Entry, held map[state.Hash]string) (io.Reader, error) {
	head := frameHead{Values: make([]frameValue, len(entries)), Blobs: []framePart{}, Held: [][2]string{}}
	parts, blobs := make([]io.Reader, 1, 1+len(entries)), state.Blobs{}
	for i, entry := range entries {
		doc, large := entry.Value.Detached()
		head.Values[i] = frameValue{entry.Name, len(doc), entry.Hash.String(), entry.Value.Size()}
		parts = append(parts, bytes.NewReader(doc))
		for hash, data := range large {
			blobs[hash] = data
		}
	}
	for hash, data := range blobs.All() {
		if name, ok := held[hash]; ok {
			head.Held = append(head.Held, [2]string{hash.String(), name})
			continue
		}
		head.Blobs = append(head.Blobs, framePart{hash.String(), len(data)})
		parts = append(parts, bytes.NewReader(data))
	}
	line, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	parts[0] = bytes.NewReader(append(line, '\n'))
	return io.MultiReader(parts...), nil
}

var errFrame = errors.New("the kernel's message is malformed")

// maxFrameHead bounds the bytes of a frame's head. maxFrameValues bounds the number of JSON values
// in the head. Both suffice for more than a hundred thousand variables, because each variable needs
// three JSON values.
const (
	maxFrameHead   = 32 << 20
	maxFrameValues = 400_000
)

// readFrame reads a frame of size bytes, whose first line has head bytes. It calls the function
// each once per value.
func readFrame(r io.Reader, head, size int, each func(name string, v state.Value) error) error {
	if head < 0 || size < head || head > maxFrameHead || size > 2*state.DefaultMaxBytes {
		return &state.LimitError{Limit: "MaxBytes", Max: state.DefaultMaxBytes}
	}
	// Each read of a download is expensive, so the buffer is large.
	r = bufio.NewReaderSize(r, 64<<10)
	part := func(n int) ([]byte, error) {
		if n < 0 || n > size {
			return nil, errFrame
		}
		size -= n
		data := make([]byte, n)
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, fmt.Errorf("read the kernel's output: %w", err)
		}
		return data, nil
	}
	line, err := part(head)
	if err != nil {
		return err
	}
	var h struct{ Values, Blobs []framePart }
	if err := boundjson.Unmarshal(line, &h, maxFrameValues, 3); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	documents := make([][]byte, len(h.Values))
	for i, v := range h.Values {
		if documents[i], err = part(v.size); err != nil {
			return err
		}
	}
	blobs := state.Blobs{}
	for _, b := range h.Blobs {
		data, err := part(b.size)
		if err != nil {
			return err
		}
		hash := state.Hash(sha256.Sum256(data))
		if hex.EncodeToString(hash[:]) != b.name {
			return fmt.Errorf("%w: a blob does not match its hash: was it changed while it was sent?", errFrame)
		}
		blobs[hash] = data
	}
	if size > 0 {
		return errFrame
	}
	for i, v := range h.Values {
		value, err := state.ParseDetached(documents[i], blobs, state.Bounds{})
		if err != nil {
			return fmt.Errorf("%.64q: %w", v.name, err)
		}
		if err := each(v.name, value); err != nil {
			return err
		}
	}
	return nil
}
