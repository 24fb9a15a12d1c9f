package clip

import (
	"fmt"
	"strings"
)

// Ends keeps the head and the tail of a sequence and counts the items between them. It is not safe
// for concurrent use.
type Ends[T any] struct {
	half  int // half of the limit: the maximum length of head, and also of tail
	head  []T
	tail  []T // a ring buffer once it is full
	next  int // the index in the ring buffer for the next item
	total int64
}

// NewEnds returns an Ends that keeps at most limit items, half of them for the head. A
// limit of 1 or less keeps nothing.
func NewEnds[T any](limit int) Ends[T] { return Ends[T]{half: max(limit, 0) / 2} }

// Add appends items.
func (e *Ends[T]) Add(p ...T) {
	e.total += int64(len(p))
	n := min(e.half-len(e.head), len(p))
	e.head = append(e.head, p[:n]...)
	p = p[n:]
	// The ring cannot hold more than the last items.
	p = p[max(len(p)-e.half, 0):]
	n = min(e.half-len(e.tail), len(p))
	e.tail = append(e.tail, p[:n]...)
	p = p[n:]
	for len(p) > 0 {
		n := copy(e.tail[e.next:], p)
		e.next = (e.next + n) % e.half
		p = p[n:]
	}
}

// Head returns the kept items at the beginning of the sequence.
func (e *Ends[T]) Head() []T { return e.head }

// Tail returns the kept items at the end of the sequence, in order. None of them is also in Head.
func (e *Ends[T]) Tail() []T {
	return append(append(make([]T, 0, len(e.tail)), e.tail[e.next:]...), e.tail[:e.next]...)
}

// Total returns how many items were added.
func (e *Ends[T]) Total() int64 { return e.total }

// Dropped returns how many items were dropped.
func (e *Ends[T]) Dropped() int64 { return e.total - int64(len(e.head)+len(e.tail)) }

// Output keeps the head and the tail of a stream of text.
type Output struct{ Ends[byte] }

// NewOutput returns an Output that keeps limit bytes.
func NewOutput(limit int) *Output { return &Output{NewEnds[byte](limit)} }

// Write adds p. It never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.Add(p...)
	return len(p), nil
}

// Text returns the kept text, with a line that gives the number of bytes left out.
// Bytes that are not UTF-8 become U+FFFD.
func (o *Output) Text() string {
	tail := o.Tail()
	dropped := o.Dropped()
	if dropped == 0 {
		return strings.ToValidUTF8(string(o.head)+string(tail), "\uFFFD")
	}
	head := WithoutCutRune(o.head)
	tail = WithoutRestOfRune(tail)
	return strings.ToValidUTF8(string(head), "\uFFFD") + fmt.Sprintf("\n[%d bytes dropped]\n", dropped) + strings.ToValidUTF8(string(tail), "\uFFFD")
}
