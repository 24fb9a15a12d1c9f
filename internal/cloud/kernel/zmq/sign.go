//go:build linux

package zmq

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

const delimiter = "<IDS|MSG>"

func (l *Link) sign(parts [][]byte) []byte {
	mac := hmac.New(sha256.New, l.key)
	for _, part := range parts {
		mac.Write(part)
	}
	return hex.AppendEncode(nil, mac.Sum(nil))
}

// write signs a message and sends it on a channel.
func (l *Link) write(channel string, m *jupyter.Message) error {
	header, err := json.Marshal(m.Header)
	if err != nil {
		return err
	}
	parent := []byte("{}")
	if m.Parent != (jupyter.Header{}) {
		if parent, err = json.Marshal(m.Parent); err != nil {
			return err
		}
	}
	content := []byte(m.Content)
	if len(content) == 0 {
		content = []byte("{}")
	}
	signed := [][]byte{header, parent, []byte("{}"), content}
	parts := slices.Concat([][]byte{[]byte(delimiter), l.sign(signed)}, signed, m.Buffers)
	l.mu.Lock()
	conn := l.conns[channel]
	l.mu.Unlock()
	if conn == nil {
		return fmt.Errorf("zmq: no connection to the %s channel", channel)
	}
	if channel == jupyter.Control {
		_ = conn.SetWriteDeadline(time.Now().Add(controlTimeout))
	}
	return conn.writeMessage(parts...)
}

// open parses a message from the kernel and checks the signature.
func (l *Link) open(parts [][]byte) (*jupyter.Message, error) {
	at := slices.IndexFunc(parts, func(part []byte) bool { return string(part) == delimiter })
	if at < 0 || len(parts) < at+6 {
		return nil, fmt.Errorf("%w: a message of %d parts", errZMTP, len(parts))
	}
	parts = parts[at+1:]
	signed := parts[1:5]
	if !hmac.Equal(parts[0], l.sign(signed)) {
		return nil, fmt.Errorf("%w: a message with a wrong signature", errZMTP)
	}
	m := &jupyter.Message{Content: signed[3], Buffers: parts[5:]}
	if len(m.Buffers) == 0 {
		m.Buffers = nil
	}
	err := json.Unmarshal(signed[0], &m.Header)
	if err == nil {
		err = json.Unmarshal(signed[1], &m.Parent)
	}
	if err == nil && (!json.Valid(m.Content) || m.Content[0] != '{') {
		err = errors.New("content that is not an object")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %.40q: %w", errZMTP, m.Header.MsgType, err)
	}
	return m, nil
}
