package kernelconn

import (
	"hash/maphash"
	"slices"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// These are the limits of the memory for ids that another program numbers.
const (
	maxNumberings = 8
	maxMissing    = 1 << 12
	maxRecent     = 1 << 12
)

// sequence finds out whether messages are missing. Kernels number their messages in
// the ids, as in "session_process_17", which shows missing and repeated messages.
// Ids without numbers show only repeated ones.
type sequence struct {
	next     map[string]int    // the next number, by the part of the id before the number
	missing  map[string]intSet // by that part, too: lower numbers that have not come since the last begin
	unproven bool              // messages may be missing without a trace

	// recent are ids without numbers; when it is full, it is a ring. A resumed
	// connection sends repeated messages before new ones.
	recent    []uint64
	at        int
	repeating bool
}

var idSeed = maphash.MakeSeed()

type intSet map[int]struct{}

// begin forgets the missing messages, because they belong to earlier requests.
func (s *sequence) begin() {
	s.missing, s.unproven = nil, false
}

// note is called with every id. A resumed connection may repeat a message: such a
// message is not fresh.
func (s *sequence) note(id string, resumed bool) (fresh bool) {
	prefix, n, ok := jupyter.SplitID(id)
	if !ok {
		s.unproven = true
		return s.noteUnnumbered(id)
	}
	next, known := s.next[prefix]
	switch {
	case !known && len(s.next) >= maxNumberings:
		s.unproven = true
		return true
	case !known:
		if s.next == nil {
			s.next = map[string]int{}
		}
		// The number before this connection is unknown, unless the numbering starts
		// here.
		s.unproven = s.unproven || resumed && (n != 0 || len(s.next) > 0)
	case n < next:
		_, waited := s.missing[prefix][n]
		delete(s.missing[prefix], n)
		return waited || !resumed
	case n-next > maxMissing || len(s.missing[prefix]) > maxMissing:
		s.unproven = true
	case n > next:
		if s.missing == nil {
			s.missing = map[string]intSet{}
		}
		if s.missing[prefix] == nil {
			s.missing[prefix] = intSet{}
		}
		for i := next; i < n; i++ {
			s.missing[prefix][i] = struct{}{}
		}
	}
	s.next[prefix] = n + 1
	return true
}

func (s *sequence) noteUnnumbered(id string) (fresh bool) {
	sum := maphash.String(idSeed, id)
	if s.repeating && slices.Contains(s.recent, sum) {
		return false
	}
	s.repeating = false
	if len(s.recent) < maxRecent {
		s.recent = append(s.recent, sum)
		return true
	}
	s.recent[s.at] = sum
	s.at = (s.at + 1) % maxRecent
	return true
}

// resume is called when another connection takes over.
func (s *sequence) resume() { s.repeating = true }

// complete reports whether nothing is missing since begin.
func (s *sequence) complete() bool {
	for _, missing := range s.missing {
		if len(missing) > 0 {
			return false
		}
	}
	return !s.unproven
}
