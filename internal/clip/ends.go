package clip

import (
	"fmt"
	"strings"
)

// Ends keeps the head and the tail of a row of things and counts the rest. It is
// not safe for concurrent use.
type Ends[T any] struct {
	half  int // of the limit: what head may have, and what tail may have
	head  []T
	tail  []T // a ring once it is full
	next  int // where the ring goes on
	total int64
}

// NewEnds keeps at most limit things, half of them of the head. A limit of 1 or
// less keeps nothing.
func NewEnds[T any](limit int) Ends[T] { return Ends[T]{half: max(limit, 0) / 2} }

// Add puts things at the end.
func (e *Ends[T]) Add(p ...T) {
	e.total += int64(len(p))
	n := min(e.half-len(e.head), len(p))
	e.head = append(e.head, p[:n]...)
	p = p[n:]
	// What fills the ring more than once leaves only its end.
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

// Head is what is kept of the beginning.
func (e *Ends[T]) Head() []T { return e.head }

// Tail is what is kept of the end, in order; it does not overlap the head.
func (e *Ends[T]) Tail() []T {
	return append(append(make([]T, 0, len(e.tail)), e.tail[e.next:]...), e.tail[:e.next]...)
}

// Total is how many there were.
func (e *Ends[T]) Total() int64 { return e.total }

// Dropped is how many are not kept.
func (e *Ends[T]) Dropped() int64 { return e.total - int64(len(e.head)+len(e.tail)) }

// Output keeps the head and the tail of a stream of text.
type Output struct{ Ends[byte] }

// NewOutput keeps limit bytes.
func NewOutput(limit int) *Output { return &Output{NewEnds[byte](limit)} }

// Write never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.Add(p...)
	return len(p), nil
}

// Text is what is kept, with a line that says how much is left out. Bytes that
// are not UTF-8 become U+FFFD.
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
