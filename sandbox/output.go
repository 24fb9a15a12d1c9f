package sandbox

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// DefaultMaxOutput is how many bytes of a stream are kept in a result unless
// the call says otherwise.
const DefaultMaxOutput = 1 << 20

// ends keeps the head and the tail of a row of things and counts the rest. It
// is not safe for concurrent use.
type ends[T any] struct {
	half  int // of the limit: what head may have, and what tail may have
	head  []T
	tail  []T // a ring once it is full
	next  int // where the ring goes on
	total int64
}

func (e *ends[T]) write(p ...T) {
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

// dropped is how many are not kept.
func (e *ends[T]) dropped() int64 { return e.total - int64(len(e.head)+len(e.tail)) }

// end is the tail in order.
func (e *ends[T]) end() []T {
	return append(append(make([]T, 0, len(e.tail)), e.tail[e.next:]...), e.tail[:e.next]...)
}

// capture keeps the head and the tail of a stream.
type capture struct{ ends[byte] }

// newCapture keeps limit bytes: 0 means [DefaultMaxOutput], less means none.
func newCapture(limit int) *capture {
	if limit == 0 {
		limit = DefaultMaxOutput
	}
	return &capture{ends[byte]{half: max(limit, 0) / 2}}
}

func (c *capture) write(p []byte) { c.ends.write(p...) }

// text is what is kept, with a line that tells what is left out. Bytes that
// are not UTF-8 become U+FFFD.
func (c *capture) text() string {
	end := c.end()
	dropped := c.dropped()
	if dropped == 0 {
		return strings.ToValidUTF8(string(c.head)+string(end), "\uFFFD")
	}
	head := withoutCutRune(c.head)
	end = withoutRestOfRune(end)
	return strings.ToValidUTF8(string(head), "\uFFFD") + fmt.Sprintf("\n[%d bytes dropped]\n", dropped) + strings.ToValidUTF8(string(end), "\uFFFD")
}

// withoutCutRune drops the beginning of a character from the end.
func withoutCutRune[T string | []byte](s T) T {
	for i := 1; i < utf8.UTFMax && i <= len(s); i++ {
		if r := s[len(s)-i:]; utf8.RuneStart(r[0]) {
			if !utf8.FullRuneInString(string(r)) {
				return s[:len(s)-i]
			}
			return s
		}
	}
	return s
}

// withoutRestOfRune drops the rest of a character from the beginning.
func withoutRestOfRune[T string | []byte](s T) T {
	for i := 0; i < utf8.UTFMax-1 && len(s) > 0 && !utf8.RuneStart(s[0]); i++ {
		s = s[1:]
	}
	return s
}
