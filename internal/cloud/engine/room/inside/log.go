//go:build linux

package inside

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync/atomic"
)

const (
	// maxLine is the maximum length of a log line. A message with a line of this length is not larger
	// than [wire.MaxEnvdMessage].
	maxLine = 12 << 10
	// maxLines limits the lines that wait for the server.
	maxLines = 512
)

// Log sends the log of envd to the server. Writes never block: if the server is too slow, Log drops
// lines, and reports the number of dropped lines to the server.
type Log struct {
	lines   chan []byte
	dropped atomic.Int64
}

func newLog() *Log { return &Log{lines: make(chan []byte, maxLines)} }

// Write takes one line, a JSON object. It never fails.
func (l *Log) Write(line []byte) (int, error) {
	kept := bytes.Clone(bytes.TrimSpace(line))
	if len(kept) > maxLine {
		l.dropped.Add(1)
		return len(line), nil
	}
	select {
	case l.lines <- kept:
	default:
		l.dropped.Add(1)
	}
	return len(line), nil
}

// send passes written lines to the given function until that fails, or until the lines end.
func (l *Log) send(to func(line json.RawMessage) error) {
	for line := range l.lines {
		if n := l.dropped.Swap(0); n > 0 {
			if to(fmt.Appendf(nil, `{"level":"WARN","msg":"%d lines of this log were dropped: they were too long, or too many at once"}`, n)) != nil {
				return
			}
		}
		if to(line) != nil {
			return
		}
	}
}
