package state

import (
	"bytes"
	"fmt"
)

// Value is a Python value as a document. It is immutable, and safe for
// concurrent use. The zero Value is None.
type Value struct {
	doc    []byte
	kind   Kind
	depth  int
	opaque bool
	other  Opaque
}

// NewValue encodes a Go value, as [Marshal] does.
func NewValue(v any) (Value, error) {
	e, err := marshal(v)
	if err != nil {
		return Value{}, err
	}
	return Value{doc: e.buf, kind: kindOf(e.buf[len(documentStart):]), depth: e.deepest}, nil
}

// kindOf tells the kind of a value by how its encoding starts.
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

// Parse checks a document from a foreign peer and keeps it. The document must
// not be written to afterwards.
func Parse(doc []byte, limits Limits) (Value, error) {
	d, err := newDecoder(doc, limits)
	if err != nil {
		return Value{}, err
	}
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
	v.depth, v.opaque = d.deepest, d.opaque
	return v, nil
}

// Kind tells what the value is in Python.
func (v Value) Kind() Kind {
	if v.doc == nil {
		return KindNone
	}
	return v.kind
}

// Opaque tells whether the value, or one within it, has no Go form: it cannot
// be sent to a sandbox.
func (v Value) Opaque() bool { return v.opaque }

// Bytes is the document. It must not be written to.
func (v Value) Bytes() []byte {
	if v.doc == nil {
		return []byte(documentStart + "null" + documentEnd)
	}
	return v.doc
}

// Decode stores the value in what v points to, by the rules of [Unmarshal].
func (v Value) Decode(into any) error {
	return UnmarshalLimits(v.Bytes(), into, Limits{MaxBytes: len(v.doc) + 64, MaxDepth: v.depth + 1, MaxNodes: len(v.doc) + 64, MaxIntDigits: len(v.doc) + 1})
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
