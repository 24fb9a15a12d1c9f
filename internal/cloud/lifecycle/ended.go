package lifecycle

import (
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

const (
	// maxEnded bounds the number of remembered ends of sandboxes. remembered is the time for
	// which an end is remembered.
	maxEnded   = 1000
	remembered = time.Hour
	// maxHow bounds the length of the text of a remembered reason.
	maxHow = 300
)

// Reason is the reason for the end of a sandbox, in a form for programs.
type Reason string

// Reasons for the end of a sandbox.
const (
	Expired     Reason = "expired"
	Idle        Reason = "idle" // nothing used the sandbox for its idle limit
	Killed      Reason = "killed"
	OutOfMemory Reason = "out_of_memory"
	Died        Reason = "died"
	ServerGone  Reason = "server_gone" // the local cloud ended while the sandbox ran
)

// An end is the reason for the end of a sandbox, in forms for programs and for people.
type end struct {
	reason Reason
	how    string
}

var (
	expired   = end{Expired, "its lifetime was over"}
	killed    = end{Killed, "it was killed by request"}
	abandoned = end{Killed, "the client that created it was gone"}
	closed    = end{ServerGone, "the local cloud was closed"}
	left      = end{ServerGone, "the local cloud ended"}
)

// death returns the end of a sandbox that ended by itself.
func death(err error) end {
	reason := Died
	if errors.Is(err, engine.ErrOutOfMemory) {
		reason = OutOfMemory
	}
	return end{reason, clip.Line(fmt.Sprintf("it died: %v", err), maxHow)}
}

// words maps each reason to a short text for everybody who has the sandbox's id. A full reason may
// contain information that is not for all of them.
var words = map[Reason]string{
	Expired: "its lifetime was over", Idle: "nothing used it for its idle limit", Killed: "it was killed", OutOfMemory: "it ran out of memory",
	Died: "it died", ServerGone: "the local cloud ended",
}

// Ended returns the reason for a sandbox's end as a short text. It returns "" if the sandbox
// exists or the reason is unknown.
func (r *Registry) Ended(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.records[id]; rec != nil && rec.State != Killing {
		return ""
	}
	return words[r.ended.notFound(id).Reason]
}

// endedLog remembers the ends of sandboxes for a limited time.
type endedLog struct {
	clock   *clock
	entries map[string]endedEntry
	order   []string
}

type endedEntry struct {
	end
	at    time.Time
	since time.Duration // at, as a value of clock.since
}

func (l *endedLog) add(id string, e end) {
	if l.entries == nil {
		l.entries = map[string]endedEntry{}
	}
	if _, again := l.entries[id]; !again {
		if len(l.order) == maxEnded {
			delete(l.entries, l.order[0])
			l.order = l.order[1:]
		}
		l.order = append(l.order, id)
	}
	l.entries[id] = endedEntry{e, l.clock.now(), l.clock.since()}
}

// notFound returns the error for a sandbox that does not exist. The error includes the reason
// for the sandbox's end, if it is known.
func (l *endedLog) notFound(id string) *NotFoundError {
	e, ok := l.entries[id]
	if !ok || l.clock.since()-e.since > remembered {
		return &NotFoundError{ID: id}
	}
	return &NotFoundError{ID: id, Reason: e.reason, EndedAt: e.at, How: e.how}
}
