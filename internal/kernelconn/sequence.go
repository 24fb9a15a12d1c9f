package kernelconn

import (
	"hash/maphash"
	"slices"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Bounds of the memory for the ids of messages. The bounds are necessary because another program
// chooses the ids.
const (
	maxNumberings = 8
	maxMissing    = 1 << 12
	maxRecent     = 1 << 12
)

// sequence detects missing and repeated messages. For this it uses the numbers in the ids: kernels
// number their messages, as in "session_process_17". If the ids contain no numbers, it detects only
// repeated messages.
type sequence struct {
	next     map[string]int    // the next number, by the part of the id before the number
	missing  map[string]intSet // by the same part: lower numbers that have not arrived since the last call of begin
	unproven bool              // a message may be missing without being noticed

	// recent contains ids without numbers. When it is full, it is used as a ring. A resumed connection
	// sends repeated messages before new messages.
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

// note records the id of a message. It must be called for every message. If a resumed connection
// repeats a message, fresh is false.
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

// complete reports whether no message is missing since the last call of begin.
func (s *sequence) complete() bool {
	for _, missing := range s.missing {
		if len(missing) > 0 {
			return false
		}
	}
	return !s.unproven
}
