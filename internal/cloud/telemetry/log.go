package telemetry

import (
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// Bounds of an entry. Longer parts are shortened.
const (
	maxMessage = 4 << 10
	maxFields  = 32
	maxName    = 64
	maxValue   = 2 << 10
)

// Entry is one entry of a log.
type Entry struct {
	Time    time.Time
	Level   slog.Level
	Logger  string
	Message string
	Fields  []Field
}

// Field is an attribute of an entry.
type Field struct{ Name, Value string }

// bound shortens an entry to the bounds of a log. It replaces the entry's fields by a copy, and does
// not change the original fields.
func (e *Entry) bound() {
	e.Logger, e.Message = clip.Text(e.Logger, maxName), clip.Text(e.Message, maxMessage)
	fields := make([]Field, min(len(e.Fields), maxFields))
	for i := range fields {
		fields[i] = Field{clip.Text(e.Fields[i].Name, maxName), clip.Text(e.Fields[i].Value, maxValue)}
	}
	e.Fields = fields
}

// size returns the approximate memory of an entry in bytes.
func (e *Entry) size() int {
	const entry, field = 96, 32
	size := entry + len(e.Logger) + len(e.Message)
	for _, f := range e.Fields {
		size += field + len(f.Name) + len(f.Value)
	}
	return size
}

// log is the log of one sandbox. The oldest entry is first.
type log struct {
	entries []Entry
	size    int
	dropped int       // number of dropped entries
	gap     time.Time // time of the latest dropped entry
}

// add appends an entry. It makes the time of each entry later than the time of the previous entry,
// so that the time identifies the entry.
func (l *log) add(e Entry) {
	if n := len(l.entries); n > 0 && !e.Time.After(l.entries[n-1].Time) {
		e.Time = l.entries[n-1].Time.Add(1)
	}
	l.entries = append(l.entries, e)
	l.size += e.size()
}

// shrink drops the oldest entries until the log takes at most size bytes.
func (l *log) shrink(size int) {
	drop := 0
	for ; drop < len(l.entries) && l.size > size; drop++ {
		l.size -= l.entries[drop].size()
		l.gap = l.entries[drop].Time
	}
	clear(l.entries[:drop]) // the array behind the slice stays in memory: free the texts in it
	l.entries = l.entries[drop:]
	l.dropped += drop
}

// Query selects entries of a log.
type Query struct {
	From     time.Time  // earliest time; zero: no bound
	Until    time.Time  // end of the period, exclusive; zero: no bound
	Backward bool       // newest first, so that Limit keeps the newest entries
	Level    slog.Level // least severe level
	Search   string     // text that the message must contain; ignores case
	Limit    int        // maximum number of entries; 0: no bound
	Whole    bool       // leave out the entries of the last millisecond if not all of them fit into the result
}

// maxFound bounds the bytes of the entries that are returned by one call.
const maxFound = 2 << 20

// find returns the first matching entries, up to q.Limit and maxFound. One of the entries may be
// the entry that reports dropped entries.
func (l *log) find(q Query) []Entry {
	q.Search = strings.ToLower(q.Search)
	found, size := []Entry{}, 0
	for e := range l.all(q.Backward) {
		if !q.matches(e) {
			continue
		}
		size += e.size()
		if len(found) > 0 && (len(found) == q.Limit || size > maxFound) {
			if q.Whole {
				return wholeMilliseconds(found, e.Time)
			}
			break
		}
		found = append(found, *e)
	}
	return found
}

// all iterates over all entries.
func (l *log) all(backward bool) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		first := l.missing()
		if !backward && first != nil && !yield(first) {
			return
		}
		for i := range l.entries {
			if backward {
				i = len(l.entries) - 1 - i
			}
			if !yield(&l.entries[i]) {
				return
			}
		}
		if backward && first != nil {
			yield(first)
		}
	}
}

// wholeMilliseconds returns entries without those in the same millisecond as next. If all entries
// are in this millisecond, it returns all of them.
func wholeMilliseconds(entries []Entry, next time.Time) []Entry {
	next = next.Truncate(time.Millisecond)
	for n := len(entries); n > 0; n-- {
		if entries[n-1].Time.Before(next) {
			return entries[:n]
		}
	}
	return entries
}

func (q *Query) matches(e *Entry) bool {
	switch {
	case e.Time.Before(q.From), !q.Until.IsZero() && !e.Time.Before(q.Until), e.Level < q.Level:
		return false
	}
	return q.Search == "" || strings.Contains(strings.ToLower(e.Message), q.Search)
}

// missing returns the entry that reports dropped entries. If no entries were dropped, it returns
// nil.
func (l *log) missing() *Entry {
	if l.dropped == 0 {
		return nil
	}
	return &Entry{
		Time: l.gap, Level: slog.LevelWarn, Logger: loggerTelemetry,
		Message: fmt.Sprintf("%d earlier entries were dropped: the log of a sandbox holds %d MiB, and those of all %d", l.dropped, maxLog>>20, maxLogs>>20),
	}
}
