package transfer

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

const (
	meterDelay = 300 * time.Millisecond // a copy that takes less time than this shows nothing
	meterPause = 100 * time.Millisecond
)

// Meter shows the progress of a copy on a terminal. Only one goroutine may use it.
type Meter struct {
	io    *cmdutil.IOStreams // nil: nothing is shown
	next  time.Time
	shown int // the length of the shown line
}

// NewMeter returns the meter of one copy. It shows nothing if quiet is set or standard error
// is no terminal.
func NewMeter(ios *cmdutil.IOStreams, quiet bool) *Meter {
	if quiet || !ios.ErrIsTerminal {
		ios = nil
	}
	return &Meter{io: ios, next: time.Now().Add(meterDelay)}
}

// Show shows the number of bytes that were moved so far.
func (m *Meter) Show(bytes int64) {
	if m.io == nil || time.Now().Before(m.next) {
		return
	}
	m.next = time.Now().Add(meterPause)
	m.write("copied " + amount(bytes))
}

// End removes the shown line.
func (m *Meter) End() {
	if m.shown > 0 {
		m.write("")
		fmt.Fprint(m.io.Err, "\r")
	}
}

// write replaces the shown line by another one. It overwrites the remainder of a longer old line
// with spaces, which works on any terminal.
func (m *Meter) write(line string) {
	fmt.Fprint(m.io.Err, "\r", line, strings.Repeat(" ", max(0, m.shown-len(line))))
	m.shown = len(line)
}

// amount formats a number of bytes for people.
func amount(bytes int64) string {
	size, unit := float64(bytes), "bytes"
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size < 1024 {
			break
		}
		size, unit = size/1024, larger
	}
	if unit == "bytes" {
		return fmt.Sprintf("%d bytes", bytes)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}

// Counted returns a reader of r that calls tell after each Read with the number of bytes that were
// read so far. If tell is nil, Counted returns r.
func Counted(r io.Reader, tell func(bytes int64)) io.Reader {
	if tell == nil {
		return r
	}
	return &counted{r: r, tell: tell}
}

type counted struct {
	r    io.Reader
	read int64
	tell func(int64)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.read += int64(n)
	c.tell(c.read)
	return n, err
}
