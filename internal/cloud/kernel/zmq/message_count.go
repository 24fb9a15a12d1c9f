//go:build linux

package zmq

import "github.com/e2bctl/e2bctl/internal/jupyter"

// messageCount counts the messages of a kernel, to detect lost messages. ZeroMQ silently drops
// messages that a subscriber does not read in time. Kernels based on ipykernel number their messages,
// with one sequence for all channels. The number is the last part of the message id. The key of the
// map is the part before the number.
type messageCount map[string]*span

type span struct{ first, last, seen int }

// maxNumberings bounds the number of keys of a messageCount. A kernel uses far fewer prefixes in
// its message ids.
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

// lost returns the number of messages that are missing between the first and the last message
// that arrived.
func (c messageCount) lost() (n int) {
	for _, s := range c {
		n += max(s.last-s.first+1-s.seen, 0)
	}
	return n
}
