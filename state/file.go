package state

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
)

// A saved state is fileMagic, a version, records, and the SHA-256 of all of these. A record
// is its type, a head and content:
//
//	b  hash, size                                     a blob
//	v  hash, size of the document, size of the name   name and document, after its blobs
//	e                                                 the end
//
// Sizes are big-endian numbers of 8 bytes.
const (
	fileMagic   = "e2bctl state\n"
	fileVersion = 1
	recordBlob  = 'b'
	recordValue = 'v'
	recordEnd   = 'e'
	// maxNameBytes is longer than any name that Python accepts.
	maxNameBytes = 1 << 12
)

// FormatError reports a saved state that is damaged or incomplete, or a file that is not a
// saved state.
type FormatError struct {
	// Offset is the position in bytes where reading stopped.
	Offset int64
	Reason string
	// Err is the cause, if it adds information. It is io.ErrUnexpectedEOF for an incomplete
	// file.
	Err error
}

func (e *FormatError) Error() string {
	text := fmt.Sprintf("state: load (byte %d): %s", e.Offset, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *FormatError) Unwrap() error { return e.Err }

// WriteTo saves the current values of the state in the form that [Load] reads, so that a new
// sandbox can continue from this state. If several values share large content, WriteTo writes that
// content only once. It also saves the values that exist only in their sandbox ([Opaque]). [Load]
// needs larger [Bounds] for a file of more than [DefaultMaxBytes], and for values that were parsed
// with larger Bounds than the default ones.
func (s *State) WriteTo(w io.Writer) (int64, error) {
	f := &fileWriter{w: bufio.NewWriter(w), sum: sha256.New()}
	f.write([]byte(fileMagic), []byte{fileVersion})
	written := map[Hash]bool{}
	for _, entry := range s.Entries() {
		doc, blobs := entry.Value.Detached()
		for hash, data := range blobs.All() {
			if !written[hash] {
				written[hash] = true
				f.write([]byte{recordBlob}, hash[:], size64(len(data)), data)
			}
		}
		f.write([]byte{recordValue}, entry.Hash[:], size64(len(doc)), size64(len(entry.Name)), []byte(entry.Name), doc)
	}
	f.write([]byte{recordEnd})
	f.write(f.sum.Sum(nil))
	if f.err == nil {
		f.err = f.w.Flush()
	}
	n := f.n - int64(f.w.Buffered())
	if f.err != nil {
		return n, fmt.Errorf("state: save: %w", f.err)
	}
	return n, nil
}

func size64(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

type fileWriter struct {
	w   *bufio.Writer
	sum hash.Hash
	n   int64
	err error
}

func (f *fileWriter) write(parts ...[]byte) {
	for _, part := range parts {
		if f.err != nil {
			return
		}
		f.sum.Write(part)
		var n int
		n, f.err = f.w.Write(part)
		f.n += int64(n)
	}
}

// Load reads a state that [State.WriteTo] saved. r may contain untrusted data. If r is an
// io.ByteReader, Load does not read beyond the end of the state. limits apply to each value, and
// limits.MaxBytes also applies to the file. The error is a *[FormatError], a *[LimitError], a
// *[NameError] or a *[DecodeError].
func Load(r io.Reader, limits Bounds) (*State, error) {
	buffered, ok := r.(interface {
		io.Reader
		io.ByteReader
	})
	if !ok {
		buffered = bufio.NewReader(r)
	}
	f := &fileReader{r: buffered, sum: sha256.New(), limits: limits.withDefaults(), blobs: Blobs{}}
	if magic, err := f.read(len(fileMagic) + 1); err != nil {
		return nil, err
	} else if string(magic[:len(fileMagic)]) != fileMagic {
		return nil, f.fail("it is not a saved state", nil)
	} else if version := magic[len(fileMagic)]; version != fileVersion {
		return nil, f.fail(fmt.Sprintf("it has version %d, and this program reads version %d", version, fileVersion), nil)
	}
	st := New()
	for {
		kind, err := f.read(1)
		if err != nil {
			return nil, err
		}
		switch kind[0] {
		case recordBlob:
			err = f.blob()
		case recordValue:
			err = f.value(st)
		case recordEnd:
			return st, f.end()
		default:
			err = f.fail(fmt.Sprintf("unknown record %q", kind[0]), nil)
		}
		if err != nil {
			return nil, err
		}
	}
}

type fileReader struct {
	r      io.Reader
	sum    hash.Hash
	n      int64
	limits Bounds
	blobs  Blobs
}

func (f *fileReader) fail(reason string, err error) error { return &FormatError{f.n, reason, err} }

// read reads n bytes. It allocates memory only as the bytes arrive.
func (f *fileReader) read(n int) ([]byte, error) {
	var b bytes.Buffer
	got, err := io.CopyN(&b, f.r, int64(n))
	f.n += got
	f.sum.Write(b.Bytes())
	if errors.Is(err, io.EOF) {
		return nil, f.fail("it ends in the middle", io.ErrUnexpectedEOF)
	}
	if err != nil {
		return nil, f.fail("read", err)
	}
	return b.Bytes(), nil
}

// head reads a hash and sizes. It returns an error if a size exceeds the rest of the limit.
func (f *fileReader) head(sizes ...*int) (Hash, error) {
	var hash Hash
	head, err := f.read(len(hash) + 8*len(sizes))
	if err != nil {
		return hash, err
	}
	left := uint64(max(0, min(f.limits.MaxBytes, math.MaxInt)-f.n))
	for i, size := range sizes {
		n := binary.BigEndian.Uint64(head[len(hash)+8*i:])
		if n > left {
			return hash, &LimitError{Limit: "MaxBytes", Max: f.limits.MaxBytes}
		}
		left -= n
		*size = int(n)
	}
	return Hash(head), nil
}

func (f *fileReader) blob() error {
	var size int
	hash, err := f.head(&size)
	if err != nil {
		return err
	}
	data, err := f.read(size)
	if err != nil {
		return err
	}
	if sha256.Sum256(data) != hash {
		return f.fail(fmt.Sprintf("the blob %s is damaged", hash), nil)
	}
	f.blobs[hash] = data
	return nil
}

func (f *fileReader) value(st *State) error {
	var size, length int
	hash, err := f.head(&size, &length)
	if err != nil {
		return err
	}
	if length > maxNameBytes {
		return f.fail(fmt.Sprintf("a name of %d bytes", length), nil)
	}
	name, err := f.read(length)
	if err != nil {
		return err
	}
	doc, err := f.read(size)
	if err != nil {
		return err
	}
	if sha256.Sum256(doc) != hash {
		return f.fail(fmt.Sprintf("the value of %.64q is damaged", name), nil)
	}
	if _, ok := st.Value(string(name)); ok {
		return f.fail(fmt.Sprintf("the name %.64q is there twice", name), nil)
	}
	v, err := ParseDetached(doc, f.blobs, f.limits)
	if err != nil {
		return within(err, fmt.Sprintf("%.64s", name))
	}
	return st.Set(string(name), v)
}

func (f *fileReader) end() error {
	want := f.sum.Sum(nil)
	if got, err := f.read(sha256.Size); err != nil {
		return err
	} else if !bytes.Equal(got, want) {
		return f.fail("its checksum does not match: it is damaged", nil)
	}
	return nil
}
