package pyenv

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// reporter reports progress, with a line for each stage. For a stage with steps, it draws a bar
// on a terminal. Elsewhere, it writes a line after every few steps.
type reporter struct {
	w           io.Writer
	terminal    bool
	total, done int
	open        bool // the current line contains a bar
}

func newReporter(w io.Writer) *reporter {
	if w == nil {
		w = io.Discard
	}
	file, ok := w.(*os.File)
	return &reporter{w: w, terminal: ok && term.IsTerminal(int(file.Fd()))}
}

// line writes one line. If there is a bar, the line is below it.
func (r *reporter) line(format string, arguments ...any) {
	if r.open {
		fmt.Fprintln(r.w)
		r.open = false
	}
	fmt.Fprintf(r.w, format+"\n", arguments...)
}

// stage begins the next stage. The stage has one step for each package. If steps is 0, the number
// of packages is unknown.
func (r *reporter) stage(name string, steps int) {
	if steps == 0 {
		r.line("%s", name)
	} else {
		r.line("%s %d packages", name, steps)
	}
	r.total, r.done = steps, 0
}

// barWidth is the number of cells of the bar. It leaves space for the count and the label in a
// line of 80 characters.
const barWidth = 30

// step counts one package in the bar on a terminal. label follows the bar.
func (r *reporter) step(label string) {
	if !r.terminal || r.total == 0 {
		return
	}
	r.done = min(r.done+1, r.total)
	filled := barWidth * r.done / r.total
	fmt.Fprintf(r.w, "\r[%s%s] %d/%d %-30.30s", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), r.done, r.total, label)
	r.open = true
}

// passed counts packages that an earlier run has already fetched. steps is the number of these
// packages.
func (r *reporter) passed(steps int) {
	r.line("%d of them were fetched before", steps)
	r.done += steps
}

// did writes a line with the number of packages that the stage has finished. The line begins with
// the verb in the parameter what. steps is the number of packages that were finished since the last
// call.
func (r *reporter) did(what string, steps int) {
	r.done += steps
	r.line("%s %d of %d packages", what, r.done, r.total)
}

// maxLine is the length in bytes at which lineWriter cuts a line.
const maxLine = 4 << 10

// lineWriter calls line for every complete line that is written to it. line may be nil.
type lineWriter struct {
	line func(string)
	part []byte
}

func (w *lineWriter) Write(data []byte) (int, error) {
	size := len(data)
	if w.line == nil {
		return size, nil
	}
	for {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			break
		}
		w.keep(data[:end])
		w.line(string(w.part))
		w.part, data = w.part[:0], data[end+1:]
	}
	w.keep(data)
	return size, nil
}

func (w *lineWriter) keep(data []byte) {
	w.part = append(w.part, data[:min(len(data), maxLine-len(w.part))]...)
}
