//go:build linux

package zmq

import "github.com/e2bctl/e2bctl/internal/jupyter"

// messageCount finds out how many messages of a kernel were lost. ZeroMQ silently drops
// what a subscriber does not read in time. Kernels of ipykernel's family number
// their messages, across all channels. The key is the part of the id before the
// number.
type messageCount map[string]*span

type span struct{ first, last, seen int }

// maxNumberings is far more than a kernel has.
const maxNumberings = 8

func (c messageCount) note(id string) {
	prefix, n, ok := jupyter.SplitID(id)
	if !ok {
		return
	}
	s := c[prefix]
	if s == nil {
		if len(c) == maxNumberings {
			return
		}
		s = &span{first: n, last: n}
		c[prefix] = s
	}
	s.first, s.last, s.seen = min(s.first, n), max(s.last, n), s.seen+1
}

// lost counts the messages missing between the first and the last that arrived.
func (c messageCount) lost() (n int) {
	for _, s := range c {
		n += max(s.last-s.first+1-s.seen, 0)
	}
	return n
}
