package lifecycle

import (
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
)

const (
	// maxEnded bounds how many ended sandboxes are remembered.
	maxEnded = 1000
	// maxHow bounds the text that is remembered for each.
	maxHow = 300
)

// endedLog remembers for a while how sandboxes ended.
type endedLog struct {
	how   map[string]string
	order []string
}

func (l *endedLog) add(id string, at time.Time, how string) {
	if l.how == nil {
		l.how = map[string]string{}
	}
	if len(l.order) == maxEnded {
		delete(l.how, l.order[0])
		l.order = l.order[1:]
	}
	l.order = append(l.order, id)
	l.how[id] = fmt.Sprintf("%s at %s", clip.Text(how, maxHow), at.Format(time.RFC3339))
}

// of returns how a sandbox ended, or "" if that is not known.
func (l *endedLog) of(id string) string { return l.how[id] }
