package builds

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

// Bounds of a build's log. Output of commands that exceeds them is left out. Lines of the build
// itself are always kept, because they report its result.
const (
	maxLines = 20_000
	maxBytes = 4 << 20
	maxLine  = 4 << 10
	// maxTail is the maximum number of log lines that a failure repeats.
	maxTail = 20
)

// Log stores the lines of one build. The index of a line never changes, because clients request the
// lines after the lines that they have received. Log is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	entries []templates.Entry
	bytes   int
	lines   int
	full    bool
}

// add appends a line of the build itself.
func (l *Log) add(level slog.Level, step, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(level, step, message)
}

func (l *Log) addLocked(level slog.Level, step, message string) {
	message = clip.Text(message, maxLine)
	l.bytes += len(message)
	l.entries = append(l.entries, templates.Entry{At: time.Now().UTC(), Level: level, Step: step, Message: message})
}

// output appends a line of a command's output.
func (l *Log) output(level slog.Level, step, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.full:
	case l.lines >= maxLines || l.bytes >= maxBytes:
		l.full = true
		l.addLocked(slog.LevelWarn, step, fmt.Sprintf("there is more output, which is left out: a build keeps %d lines of it, %d MiB at most", maxLines, maxBytes>>20))
	default:
		l.lines++
		l.addLocked(level, step, message)
	}
}

// Select selects the lines that [Log.Lines] returns.
type Select struct {
	Level    slog.Level // least severe level
	Offset   int        // number of lines to skip
	Limit    int
	From     time.Time // time of the earliest line; zero: no bound
	Until    time.Time // time of the latest line; zero: no bound
	Backward bool      // newest first
}

func (s *Select) matches(e *templates.Entry) bool {
	return e.Level >= s.Level && !e.At.Before(s.From) && (s.Until.IsZero() || !e.At.After(s.Until))
}

// Lines returns the lines that s selects.
func (l *Log) Lines(s Select) []templates.Entry {
	l.mu.Lock()
	entries := l.entries[:len(l.entries):len(l.entries)] // safe without the lock, as entries are only appended
	l.mu.Unlock()
	return selected(entries, s)
}

func selected(entries []templates.Entry, s Select) []templates.Entry {
	found := []templates.Entry{}
	skip := s.Offset
	for i := range entries {
		e := &entries[i]
		if s.Backward {
			e = &entries[len(entries)-1-i]
		}
		if !s.matches(e) {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		if len(found) == s.Limit {
			break
		}
		found = append(found, *e)
	}
	return found
}

// tail returns the last lines of a step.
func (l *Log) tail(step string) []templates.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var last []templates.Entry
	for _, e := range slices.Backward(l.entries) {
		if e.Step != step || len(last) == maxTail {
			break
		}
		last = append(last, e)
	}
	slices.Reverse(last)
	return last
}

func (l *Log) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// lines logs each line of the text that is written to it.
type lines struct {
	log   *Log
	level slog.Level
	step  string
	line  []byte // the unfinished line
	last  string // the last nonempty text of the line
}

func (w *lines) Write(p []byte) (int, error) {
	n := len(p)
	for {
		line, rest, ended := bytes.Cut(p, []byte{'\n'})
		w.line = append(w.line, line[:min(len(line), maxLine+1-min(len(w.line), maxLine+1))]...)
		if !ended {
			return n, nil
		}
		w.end()
		p = rest
	}
}

// end logs the unfinished line. If a carriage return restarted the line, as progress bars do,
// end logs the last text of the line.
func (w *lines) end() {
	text := strings.TrimRight(clip.Text(string(w.line), maxLine), "\r")
	w.line = w.line[:0]
	if i := strings.LastIndexByte(text, '\r'); i >= 0 {
		text = text[i+1:]
	}
	if strings.TrimSpace(text) != "" {
		w.last = text
	}
	w.log.output(w.level, w.step, text)
}

// close logs an unfinished line.
func (w *lines) close() {
	if len(w.line) > 0 {
		w.end()
	}
}
