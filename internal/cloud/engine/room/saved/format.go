//go:build linux

package saved

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

// magic is the beginning of a file of saved files. The number is the version of the format.
const magic = "e2bctl files 1\n"

// kind distinguishes records. There is one kind for each type of file, one for another name of an
// earlier file, and one for a removed file. Other kinds end a directory or all records.
type kind byte

const (
	section   kind = 'S' // a directory with all its content, up to the record that ends it
	directory kind = 'D' // a directory inside another one, with all its content, up to the record that ends it
	leave     kind = 'U'
	regular   kind = 'F' // a regular file, followed by its extents
	again     kind = 'H' // another name of an earlier file
	symlink   kind = 'L'
	fifo      kind = 'P'
	whiteout  kind = 'W' // a removed file of the tree below
	end       kind = 'E'
)

// Bounds of a record's values. The kernel's own bounds are not larger.
const (
	maxName   = 255
	maxTarget = 4 << 10
	maxValue  = 64 << 10
	maxAttrs  = 4 << 10
	maxDepth  = 4000 // directories inside each other; each needs an open descriptor
)

// record is one file without its content.
type record struct {
	kind  kind
	name  string
	mode  uint32 // the permissions only, without the type
	uid   uint32
	gid   uint32
	atime [2]int64
	mtime [2]int64
	attrs []attr
	size  int64 // size of a regular file
	// link is the number of a regular file, symlink or fifo with several names. Later again records
	// refer to the file by this number. It is 0 if the file has only one name.
	link   uint64
	names  uint64 // number of names (hard links) of the file
	target string // target of a symlink
}

type attr struct{ name, value string }

// overlayAttr is the prefix of an overlay's own attributes. If an attribute in an overlay's
// directory has the prefix escapedAttr, programs see the attribute with the prefix overlayAttr
// instead. Records use the names that programs see.
const (
	overlayAttr = "user.overlay."
	escapedAttr = overlayAttr + "overlay."
	opaqueAttr  = overlayAttr + "opaque" // the directory hides the directories at the same path in the layers below
	originAttr  = overlayAttr + "origin" // the directory may contain whiteouts even if no layer below has the directory
)

// ErrDamaged means that the file of saved files has changed since it was written.
var ErrDamaged = errors.New("the saved files are damaged")

// ErrLayout means that the files were saved by a server whose saved files have another layout.
var ErrLayout = errors.New("these files were saved in sandboxes of another kind")

var table = crc32.MakeTable(crc32.Castagnoli)

// encoder writes records. It keeps the first error.
type encoder struct {
	w   *bufio.Writer
	sum uint32
	err error
}

func newEncoder(w io.Writer) *encoder { return &encoder{w: bufio.NewWriterSize(w, 1<<20)} }

func (e *encoder) Write(p []byte) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	e.sum = crc32.Update(e.sum, table, p)
	n, err := e.w.Write(p)
	e.err = err
	return n, err
}

func (e *encoder) bytes(p []byte)     { _, _ = e.Write(p) } // the error stays in err
func (e *encoder) number(n uint64)    { e.bytes(binary.AppendUvarint(make([]byte, 0, 10), n)) }
func (e *encoder) signed(n int64)     { e.bytes(binary.AppendVarint(make([]byte, 0, 10), n)) }
func (e *encoder) text(s string)      { e.number(uint64(len(s))); e.bytes([]byte(s)) }
func (e *encoder) time(t [2]int64)    { e.signed(t[0]); e.signed(t[1]) }
func (e *encoder) extent(at, n int64) { e.number(uint64(n)); e.number(uint64(at)) }

func (e *encoder) record(r *record) {
	e.bytes([]byte{byte(r.kind)})
	switch r.kind {
	case leave, end:
		return
	case again:
		e.text(r.name)
		e.number(r.link)
		return
	}
	e.text(r.name)
	e.number(uint64(r.mode))
	e.number(uint64(r.uid))
	e.number(uint64(r.gid))
	e.time(r.atime)
	e.time(r.mtime)
	e.number(uint64(len(r.attrs)))
	for _, a := range r.attrs {
		e.text(a.name)
		e.text(a.value)
	}
	switch r.kind {
	case regular, symlink, fifo:
		e.number(r.link)
		if r.link != 0 {
			e.number(r.names)
		}
	}
	switch r.kind {
	case regular:
		e.number(uint64(r.size))
	case symlink:
		e.text(r.target)
	}
}

// finish writes the end record. A file without an end record was cut off.
func (e *encoder) finish() error {
	e.record(&record{kind: end})
	e.bytes(binary.BigEndian.AppendUint32(nil, e.sum))
	if e.err != nil {
		return e.err
	}
	return e.w.Flush()
}

// decoder reads records. It keeps the first error.
type decoder struct {
	r   *bufio.Reader
	sum uint32
	err error
}

func (d *decoder) damaged(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
	}
}

func (d *decoder) Read(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	n, err := d.r.Read(p)
	d.sum = crc32.Update(d.sum, table, p[:n])
	if err != nil {
		d.fail(err)
	}
	return n, d.err
}

func (d *decoder) fail(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		d.damaged("they end too early")
	}
	if d.err == nil {
		d.err = err
	}
}

// ReadByte makes decoder an [io.ByteReader].
func (d *decoder) ReadByte() (byte, error) {
	var b [1]byte
	_, err := io.ReadFull(d, b[:])
	return b[0], err
}

func (d *decoder) number(most uint64) uint64 {
	n, err := binary.ReadUvarint(d)
	if err != nil && d.err == nil || n > most {
		d.damaged("a number is too large")
		return 0
	}
	return n
}

func (d *decoder) signed() int64 {
	n, err := binary.ReadVarint(d)
	if err != nil && d.err == nil {
		d.damaged("a number is too large")
	}
	return n
}

func (d *decoder) text(most uint64) string {
	p := make([]byte, d.number(most))
	if _, err := io.ReadFull(d, p); err != nil {
		return ""
	}
	return string(p)
}

func (d *decoder) time() [2]int64 { return [2]int64{d.signed(), d.signed()} }

const (
	maxID   = 1<<32 - 1
	maxSize = 1<<63 - 1
)

func (d *decoder) record() *record {
	b, _ := d.ReadByte() // the error stays in err
	r := &record{kind: kind(b)}
	switch r.kind {
	case leave, end:
		return r
	case again:
		r.name = d.name(maxName)
		r.link = d.number(maxSize)
		return r
	case section:
		r.name = d.text(maxTarget)
	case directory, regular, symlink, fifo, whiteout:
		r.name = d.name(maxName)
	default:
		d.damaged("there is a record of kind %d", b)
		return r
	}
	r.mode = uint32(d.number(0o7777))
	r.uid, r.gid = uint32(d.number(maxID)), uint32(d.number(maxID))
	r.atime, r.mtime = d.time(), d.time()
	for range d.number(maxAttrs) {
		r.attrs = append(r.attrs, attr{d.text(maxName), d.text(maxValue)})
		if d.err != nil {
			return r
		}
	}
	switch r.kind {
	case regular, symlink, fifo:
		if r.link = d.number(maxSize); r.link != 0 {
			r.names = d.number(maxSize)
		}
	}
	switch r.kind {
	case regular:
		r.size = int64(d.number(maxSize))
	case symlink:
		r.target = d.text(maxTarget)
	}
	return r
}

// name reads the name of a file in a directory.
func (d *decoder) name(most uint64) string {
	name := d.text(most)
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		d.damaged("there is a file called %.100q", name)
	}
	return name
}

// finish checks the checksum at the end.
func (d *decoder) finish() error {
	want := binary.BigEndian.AppendUint32(nil, d.sum)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(d, got); err == nil && string(got) != string(want) {
		d.damaged("their checksum is %x, not %x", want, got)
	}
	return d.err
}
