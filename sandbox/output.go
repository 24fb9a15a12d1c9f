package sandbox

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// DefaultMaxOutput is how many bytes of a stream are kept in a result unless
// the call says otherwise.
const DefaultMaxOutput = 1 << 20

// capture keeps the head and the tail of a stream and counts the rest. It is
// not safe for concurrent use.
type capture struct {
	half  int // of the limit: what head may have, and what tail may have
	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where the ring goes on
	total int64
}

// newCapture keeps limit bytes: 0 means [DefaultMaxOutput], less means none.
func newCapture(limit int) *capture {
	if limit == 0 {
		limit = DefaultMaxOutput
	}
	return &capture{half: max(limit, 0) / 2}
}

func (c *capture) write(p []byte) {
	c.total += int64(len(p))
	n := min(c.half-len(c.head), len(p))
	c.head = append(c.head, p[:n]...)
	p = p[n:]
	// What fills the ring more than once leaves only its end.
	p = p[max(len(p)-c.half, 0):]
	n = min(c.half-len(c.tail), len(p))
	c.tail = append(c.tail, p[:n]...)
	p = p[n:]
	for len(p) > 0 {
		n := copy(c.tail[c.next:], p)
		c.next = (c.next + n) % c.half
		p = p[n:]
	}
}

// dropped is how many bytes are not kept.
func (c *capture) dropped() int64 { return c.total - int64(len(c.head)+len(c.tail)) }

// text is what is kept, with a line that tells what is left out. Bytes that
// are not UTF-8 become U+FFFD.
func (c *capture) text() string {
	end := append(append([]byte(nil), c.tail[c.next:]...), c.tail[:c.next]...)
	dropped := c.dropped()
	if dropped == 0 {
		return strings.ToValidUTF8(string(c.head)+string(end), "\uFFFD")
	}
	head := c.head
	for i := 1; i < utf8.UTFMax && i <= len(head); i++ { // a character cut in two
		if r := head[len(head)-i:]; utf8.RuneStart(r[0]) {
			if !utf8.FullRune(r) {
				head = head[:len(head)-i]
			}
			break
		}
	}
	for i := 0; i < utf8.UTFMax-1 && len(end) > 0 && !utf8.RuneStart(end[0]); i++ {
		end = end[1:]
	}
	return strings.ToValidUTF8(string(head), "\uFFFD") + fmt.Sprintf("\n[%d bytes dropped]\n", dropped) + strings.ToValidUTF8(string(end), "\uFFFD")
}
