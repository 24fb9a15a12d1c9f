package sandbox

import (
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
)

const (
	// maxLogs is the maximum number of entries in an execution's log.
	maxLogs = 8 << 10
	// logWindow is the time during which pieces of one stream form one entry, unless the other stream
	// interrupts them. Without this window, code that prints a million lines would produce a million
	// entries.
	logWindow = 10 * time.Millisecond
)

// logs records the order in which the pieces of stdout and stderr arrived. It does not contain the
// text, but refers to the text that the capture of each stream keeps.
type logs struct {
	stdout, stderr *clip.Output
	entries        clip.Ends[logEntry]
	last           logEntry // the latest entry, which is not yet in entries
}

// logEntry is a part of a stream. It contains the byte offsets of that part in the stream.
type logEntry struct {
	stream     OutputStream
	time       time.Time
	start, end int64
}

func newLogs(limit int64) logs {
	return logs{stdout: newOutput(limit), stderr: newOutput(limit), entries: clip.NewEnds[logEntry](maxLogs)}
}

func (l *logs) stream(stream OutputStream) *clip.Output {
	if stream == StreamStderr {
		return l.stderr
	}
	return l.stdout
}

// note records that the stream is about to receive size bytes.
func (l *logs) note(stream OutputStream, size int, now time.Time) {
	start := l.stream(stream).Total()
	if l.last.stream != stream || now.Sub(l.last.time) > logWindow {
		l.flush()
		l.last = logEntry{stream: stream, time: now, start: start}
	}
	l.last.end = start + int64(size)
}

func (l *logs) flush() {
	if l.last.end > l.last.start {
		l.entries.Add(l.last)
	}
	l.last = logEntry{}
}

// list returns the kept entries with their text, and the number of entries that were dropped.
func (l *logs) list() (list []Output, dropped int) {
	l.flush()
	texts := map[OutputStream]keptText{}
	for _, stream := range []OutputStream{StreamStdout, StreamStderr} {
		c := l.stream(stream)
		texts[stream] = keptText{string(c.Head()), string(c.Tail()), c.Total()}
	}
	dropped = int(l.entries.Dropped())
	for _, part := range [][]logEntry{l.entries.Head(), l.entries.Tail()} {
		for _, e := range part {
			text, cut := texts[e.stream].slice(e.start, e.end)
			if text == "" && cut {
				dropped++
				continue
			}
			list = append(list, Output{Stream: e.stream, Text: text, Time: e.time})
		}
	}
	return list, dropped
}

// keptText is the text that a capture keeps.
type keptText struct {
	head, tail string
	total      int64
}

// slice returns the kept part of the bytes from start to end. cut reports whether a part is
// missing.
func (k keptText) slice(start, end int64) (text string, cut bool) {
	inHead, inTail := int64(len(k.head)), k.total-int64(len(k.tail))
	from, to := min(start, inHead), min(end, inHead)
	text = k.head[from:to]
	kept := to - from
	from, to = max(start, inTail), max(end, inTail)
	rest := k.tail[from-inTail : to-inTail]
	kept += to - from
	if cut = kept < end-start; cut {
		text, rest = clip.WithoutCutRune(text), clip.WithoutRestOfRune(rest)
	}
	return strings.ToValidUTF8(text+rest, "\uFFFD"), cut
}
