//go:build linux

package survey

import (
	"encoding/binary"
	"errors"
	"time"
)

// magic is the beginning of a snapshot's file. It identifies the format.
const magic = "e2bctl survey 1\n"

// ErrFormat is returned for data that is not a snapshot.
var ErrFormat = errors.New("not a snapshot of a survey")

// MarshalBinary encodes the snapshot for [Snapshot.UnmarshalBinary].
func (s *Snapshot) MarshalBinary() ([]byte, error) {
	b := make([]byte, 0, 64*len(s.directories)+64)
	b = append(b, magic...)
	b = binary.AppendVarint(b, s.Made.UnixNano())
	for _, d := range s.directories {
		b = appendText(b, d.path)
		b = binary.AppendUvarint(b, d.inode)
		b = binary.AppendVarint(b, d.changed)
		private := byte(0)
		if d.private {
			private = 1
		}
		b = append(b, private)
		b = binary.AppendUvarint(b, uint64(len(d.files)))
		for _, name := range d.files {
			b = appendText(b, name)
		}
	}
	return b, nil
}

// UnmarshalBinary decodes the result of MarshalBinary. If b is not such a result, the error is
// [ErrFormat].
func (s *Snapshot) UnmarshalBinary(b []byte) error {
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		return ErrFormat
	}
	r := reader{left: b[len(magic):]}
	read := Snapshot{Made: time.Unix(0, r.signed()), directories: make([]directory, 0, len(b)/64)}
	for len(r.left) > 0 && !r.broken {
		d := directory{path: r.text(), inode: r.unsigned(), changed: r.signed(), private: r.flag()}
		for range r.count() {
			d.files = append(d.files, r.text())
		}
		read.directories = append(read.directories, d)
	}
	if r.broken {
		return ErrFormat
	}
	*s = read
	return nil
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// reader reads values from the beginning of left. After the first error, all values are zero.
type reader struct {
	left   []byte
	broken bool
}

func (r *reader) took(n int) {
	if n <= 0 || n > len(r.left) {
		r.left, r.broken = nil, true
		return
	}
	r.left = r.left[n:]
}

func (r *reader) signed() int64 {
	value, n := binary.Varint(r.left)
	r.took(n)
	return value
}

func (r *reader) unsigned() uint64 {
	value, n := binary.Uvarint(r.left)
	r.took(n)
	return value
}

func (r *reader) flag() bool {
	set := len(r.left) > 0 && r.left[0] == 1
	r.took(1)
	return set
}

// count reads the number of strings that follow. Each string takes at least one byte.
func (r *reader) count() uint64 {
	n := r.unsigned()
	if n > uint64(len(r.left)) {
		r.left, r.broken = nil, true
		return 0
	}
	return n
}

func (r *reader) text() string {
	n := r.count()
	text := string(r.left[:n])
	r.left = r.left[n:]
	return text
}
