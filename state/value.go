package state

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
)

// Value is an encoded Python value. It is immutable, and safe for concurrent use. The zero
// Value is None.
type Value struct {
	// doc contains the names of the blobs, not their bytes.
	doc    []byte
	blobs  Blobs
	kind   Kind
	depth  int
	opaque bool
	other  Opaque
	json   bool // the value comes from a JSON text; see FromJSON
}

// NewValue encodes a Go value, like [Marshal].
func NewValue(v any) (Value, error) {
	e, err := marshal(v, true)
	if err != nil {
		return Value{}, err
	}
	return Value{doc: e.buf, kind: kindOf(e.buf[len(documentStart):]), depth: e.deepest, blobs: e.blobs}, nil
}

// kindOf returns the kind of a value, from the beginning of its encoding.
func kindOf(body []byte) Kind {
	if rest, ok := bytes.CutPrefix(body, []byte(`{"$":"`)); ok {
		kind, _, _ := bytes.Cut(rest, []byte(`"`))
		return Kind(kind)
	}
	switch body[0] {
	case 'n':
		return KindNone
	case 't', 'f':
		return KindBool
	case '"':
		return KindStr
	case '[':
		return KindList
	case '{':
		return KindDict
	}
	if bytes.ContainsAny(body, ".e") {
		return KindFloat
	}
	return KindInt
}

// Parse checks a document from an untrusted peer and returns its value. The Value refers to doc, so
// the caller must not change doc afterwards.
func Parse(doc []byte, limits Bounds) (Value, error) { return ParseDetached(doc, nil, limits) }

// ParseDetached is like [Parse], for a document that is separate from its blobs, such as one from
// [Value.Detached]. The caller must have checked the blobs against their hashes, and must not
// change them afterwards.
func ParseDetached(doc []byte, blobs Blobs, limits Bounds) (Value, error) {
	d, err := newDecoder(doc, blobs, limits)
	if err != nil {
		return Value{}, err
	}
	d.check = true
	v := Value{doc: doc}
	n, err := d.next()
	if err == nil {
		v.kind = n.kind
		v.other, _ = n.rare.(Opaque)
		err = d.discard(n)
	}
	if err != nil {
		return Value{}, err
	}
	if err := d.finish(); err != nil {
		return Value{}, err
	}
	v.depth, v.opaque, v.blobs = d.deepest, d.opaque, named(doc, blobs)
	if int64(len(doc)+v.blobs.size()) > d.limits.MaxBytes {
		return Value{}, &LimitError{Limit: "MaxBytes", Max: d.limits.MaxBytes}
	}
	return v, nil
}

// Kind returns the kind of the value in Python.
func (v Value) Kind() Kind {
	if v.doc == nil {
		return KindNone
	}
	return v.kind
}

// Opaque reports whether the value, or a value inside it, has no Go form. Such a value cannot
// be sent to a sandbox.
func (v Value) Opaque() bool { return v.opaque }

// Bytes returns the document, which must not be changed.
func (v Value) Bytes() []byte {
	if v.doc == nil {
		return []byte(documentStart + "null" + documentEnd)
	}
	return inline(v.doc, v.blobs)
}

// Detached returns the document and its blobs. A blob is a byte string of 64 KiB or more; the
// document contains its hash instead. The caller must not change the document or the blobs.
func (v Value) Detached() ([]byte, Blobs) {
	if v.doc == nil {
		return v.Bytes(), nil
	}
	return v.doc, v.blobs
}

// Size returns the number of bytes of the detached document and its blobs.
func (v Value) Size() int { return len(v.doc) + v.blobs.size() }

// hash identifies the value. It includes the blobs, because the document contains their hashes.
func (v Value) hash() Hash {
	doc, _ := v.Detached()
	return sha256.Sum256(doc)
}

// Decode stores the value in the variable that into points to, by the rules of
// [Unmarshal].
func (v Value) Decode(into any) error {
	doc, blobs := v.Detached()
	return unmarshal(doc, blobs, into, v.limits(), v.json)
}

// limits returns bounds for decoding the value. The value never exceeds these bounds, because it
// was checked when it was created.
func (v Value) limits() Bounds {
	size := v.Size() + len(documentStart+"null"+documentEnd) // that of the zero Value
	// A slice of slices counts its dimensions. An array without bytes may have such dimensions,
	// too.
	nodes := max(size+64, DefaultMaxNodes)
	return Bounds{MaxBytes: int64(size), MaxDepth: v.depth + 1, MaxNodes: nodes, MaxIntDigits: size, MaxElements: math.MaxInt, MaxPixels: math.MaxInt}
}

func (v Value) body() []byte {
	return v.doc[len(documentStart) : len(v.doc)-len(documentEnd)]
}

func (v Value) describe() string {
	if v.kind == KindOpaque {
		return fmt.Sprintf("%.100s %.100s", v.other.Type, v.other.Repr)
	}
	return fmt.Sprintf("a %s with one in it", v.kind)
}
