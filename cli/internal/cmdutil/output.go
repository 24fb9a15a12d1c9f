package cmdutil

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// WriteJSON writes v as one indented JSON document. It escapes bytes that are not UTF-8, and all
// characters on which a terminal may act, including the ones that JSON allows in strings.
func WriteJSON(w io.Writer, v any) error {
	if done, err := formatted(w, v); done {
		return err
	}
	enc := newEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// WriteJSONLine is like [WriteJSON], but writes the document on one line, so that several can
// follow each other.
func WriteJSONLine(w io.Writer, v any) error {
	if done, err := formatted(w, v); done {
		return err
	}
	return newEncoder(w).Encode(v)
}

func newEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(activeEscaper{w})
	enc.SetEscapeHTML(false)
	return enc
}

// activeEscaper escapes the characters of a JSON document on which a terminal may act. It relies on
// the encoder to write the document in one call. Outside of strings, newlines are the only such
// characters in a document.
type activeEscaper struct{ w io.Writer }

func (a activeEscaper) Write(document []byte) (int, error) {
	escaped := make([]byte, 0, len(document))
	for rest := document; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r != '\n' && IsActive(r) || r == utf8.RuneError {
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		} else {
			escaped = append(escaped, rest[:size]...)
		}
		rest = rest[size:]
	}
	if _, err := a.w.Write(escaped); err != nil {
		return 0, err
	}
	return len(document), nil
}

// WriteTable writes a table in the form of kubectl: the header in upper case, three spaces between
// columns, no borders. It makes cells [Printable], so that text from a service or a sandbox cannot
// forge a row.
//
// width is the number of columns of the terminal. If the table is too wide, the cells of the last
// column are broken between words. Words remain whole, so that IDs can be copied. If the table is
// still too wide, each row becomes a block of lines, one for each column. With a width of 0, and
// with --no-headers, each row is one line.
func WriteTable(w io.Writer, width int, header []string, rows [][]string) error {
	return writeTable(w, width, header, rows, false, nil)
}

// writeTable is [WriteTable] with two further ways to make a table narrower. First, it leaves out
// the columns named in spare, one after the other, until the last column has enough room. Then,
// with shorten, it removes the middle of long words in the last column, if that is sufficient.
func writeTable(w io.Writer, width int, header []string, rows [][]string, shorten bool, spare []string) error {
	cells := make([][]string, len(rows))
	all := make([]string, 0, len(rows)*len(header)) // one allocation instead of one for each row
	for i, row := range rows {
		for _, cell := range row {
			all = append(all, cellText(cell))
		}
		cells[i] = all[len(all)-len(row) : len(all) : len(all)]
	}
	if withoutHeaders(w) {
		if len(cells) == 0 {
			return nil
		}
		return writeRows(w, math.MaxInt, cells)
	}
	if width == 0 {
		return writeRows(w, math.MaxInt, append([][]string{header}, cells...))
	}
	room := roomOfLast(width, header, cells)
	for room < idColumns && len(spare) > 0 {
		header, cells = withoutColumn(slices.Index(header, spare[0]), header, cells)
		room, spare = roomOfLast(width, header, cells), spare[1:]
	}
	if shorten && room >= idColumns {
		for _, row := range cells {
			row[len(row)-1] = shortened(row[len(row)-1], room)
		}
	}
	// A word that would not fit a block either does not count.
	if longestWord(header, cells, width-widest(header, nil, 0)-tablePadding) > room {
		return writeBlocks(w, width, header, cells)
	}
	return writeRows(w, room, append([][]string{header}, cells...))
}

// roomOfLast returns the room for the last column of a table on a terminal of width columns, in
// columns of the terminal.
func roomOfLast(width int, header []string, cells [][]string) int {
	for column := range len(header) - 1 {
		width -= widest(header[column:column+1], cells, column) + tablePadding
	}
	return width
}

// withoutColumn returns a table without one of its columns.
func withoutColumn(column int, header []string, cells [][]string) ([]string, [][]string) {
	fewer := make([][]string, len(cells))
	for i, row := range cells {
		fewer[i] = slices.Concat(row[:column], row[column+1:])
	}
	return slices.Concat(header[:column], header[column+1:]), fewer
}

// idColumns is the number of terminal columns of the shortest IDs.
const idColumns = 20

// Rows writes the rows of a table one by one, for a table that grows. It is like [WriteTable], but does
// not know the rows that follow: the widths of the columns are fixed.
type Rows struct {
	Out    io.Writer
	Width  int // the number of columns of the terminal; 0 if there is none
	Header []string
	Widths []int // of all columns but the last; a wider cell moves the cells after it

	header, begun bool // the header, or anything, has been written
}

// Write writes a row.
func (r *Rows) Write(row []string) error {
	texts := make([]string, len(row))
	for i, cell := range row {
		texts[i] = cellText(cell)
	}
	cells, header := slices.Clone(texts), slices.Clone(r.Header)
	for i, width := range r.Widths {
		cells[i] += strings.Repeat(" ", max(0, width-columns(cells[i])))
		header[i] += strings.Repeat(" ", max(0, width-columns(header[i])))
	}
	rows, room := [][]string{cells}, math.MaxInt
	first := !r.begun
	r.begun = true
	if withoutHeaders(r.Out) {
		return writeRows(r.Out, room, rows)
	}
	if r.Width > 0 {
		room = roomOfLast(r.Width, header, rows)
	}
	if room < idColumns && longestWord(header, rows, math.MaxInt) > room {
		if !first {
			if _, err := io.WriteString(r.Out, "\n"); err != nil {
				return err
			}
		}
		return writeBlocks(r.Out, r.Width, r.Header, [][]string{texts})
	}
	if !r.header {
		rows = append([][]string{header}, rows...)
	}
	r.header = true
	return writeRows(r.Out, room, rows)
}

// writeBlocks writes each row as a block of lines, each with a column's name and the cell. If the
// terminal is too narrow for an ID beside its column's name, each cell with a word that does not
// fit is written below the name.
func writeBlocks(w io.Writer, width int, header []string, cells [][]string) error {
	names := widest(header, nil, 0)
	beside, longest := width-names-tablePadding, 0
	for _, row := range cells {
		for _, cell := range row {
			longest = max(longest, longestWord([]string{cell}, nil, width))
		}
	}
	isNarrow := longest >= idColumns && longest > beside
	var blocks strings.Builder
	for i, row := range cells {
		if i > 0 {
			blocks.WriteString("\n")
		}
		for column, cell := range row {
			name, indent, room := header[column], names+tablePadding, beside
			if isNarrow && longestWord([]string{cell}, nil, width) > beside {
				name, indent, room = name+"\n", 0, width
			}
			name += strings.Repeat(" ", max(0, indent-columns(name)))
			blocks.WriteString(name + strings.Join(linesOf(cell, room), "\n"+strings.Repeat(" ", indent)) + "\n")
		}
	}
	_, err := io.WriteString(w, blocks.String())
	return err
}

// writeRows writes rows and breaks the last cell of each row into lines of at most room columns.
func writeRows(w io.Writer, room int, rows [][]string) error {
	widths := make([]int, len(rows[0])-1) // for all columns but the last
	indent := "\n"
	for column := range widths {
		widths[column] = widest(nil, rows, column) + tablePadding
		indent += strings.Repeat(" ", widths[column])
	}
	var table strings.Builder
	table.Grow(len(rows) * len(indent))
	for _, row := range rows {
		for column, width := range widths {
			table.WriteString(row[column])
			table.WriteString(strings.Repeat(" ", width-columns(row[column])))
		}
		last := row[len(widths)]
		if room < math.MaxInt {
			last = strings.Join(linesOf(last, room), indent)
		}
		table.WriteString(last)
		table.WriteByte('\n')
	}
	_, err := io.WriteString(w, table.String())
	return err
}

// widest returns the width, in columns of a terminal, of the widest text among names and the cells
// in one column of the table.
func widest(names []string, cells [][]string, column int) (n int) {
	for _, name := range names {
		n = max(n, columns(name))
	}
	for _, row := range cells {
		n = max(n, columns(row[column]))
	}
	return n
}

// columns returns the width of a text in columns of a terminal.
func columns(text string) (n int) {
	for _, r := range text {
		if r < utf8.RuneSelf {
			n++
			continue
		}
		kind := width.LookupRune(r).Kind()
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf): // it is combined with the character before it
		case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}

// longestWord returns the width of the longest word in the last column, in columns of a terminal.
// It includes the words of the header, and ignores words that are wider than limit.
func longestWord(header []string, cells [][]string, limit int) (longest int) {
	last := len(header) - 1
	for _, row := range append([][]string{header}, cells...) {
		for _, word := range wordsOf(row[last]) {
			if n := columns(word); n <= limit {
				longest = max(longest, n)
			}
		}
	}
	return longest
}

// tablePadding is the space between two columns.
const tablePadding = 3

// shortened returns a text in which each word takes at most limit columns of a terminal: an
// ellipsis replaces the middle of a longer word.
func shortened(text string, limit int) string {
	if columns(text) <= limit {
		return text
	}
	words := strings.Fields(text)
	for i, word := range words {
		begin, end := []rune(word), []rune(word)
		for columns(string(begin)) > limit/2 {
			begin = begin[:len(begin)-1]
		}
		for columns(string(end)) > limit-limit/2-1 {
			end = end[1:]
		}
		if columns(word) > limit {
			words[i] = string(begin) + "…" + string(end)
		}
	}
	return strings.Join(words, " ")
}

// linesOf breaks a text between its words, into lines of at most width columns of a
// terminal. A line of one word may be longer. The text must not be empty.
func linesOf(text string, width int) (lines []string) {
	if columns(text) <= width {
		return []string{text}
	}
	line := ""
	for _, word := range wordsOf(text) {
		switch {
		case line == "":
			line = word
		case columns(line)+1+columns(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}

// wordsOf returns the parts of a text between which a line may be broken. A size such as 2048 MiB
// is one part.
func wordsOf(text string) (words []string) {
	for word := range strings.FieldsSeq(text) {
		if strings.HasSuffix(word, "iB") && len(words) > 0 {
			words[len(words)-1] += " " + word
			continue
		}
		words = append(words, word)
	}
	return words
}

func cellText(s string) string {
	s = strings.ReplaceAll(Printable(s), "\n", " ")
	if s == "" {
		return "-"
	}
	return s
}

// Printable returns s without characters on which a terminal would act: control characters,
// including ANSI escapes, and characters that reorder text. It keeps newlines, and replaces tabs by
// spaces and invalid UTF-8 by U+FFFD.
func Printable(s string) string {
	if isPlain(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t':
			return ' '
		case r == utf8.RuneError:
			return '\uFFFD'
		case IsActive(r):
			return -1
		}
		return r
	}, s)
}

// isPlain reports whether s is printable ASCII and newlines, as nearly all texts are.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '\n' && (c < ' ' || c >= 0x7f) {
			return false
		}
	}
	return true
}

// IsActive reports whether a terminal may act on r instead of showing it.
func IsActive(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// Moment formats t. For a terminal, the result is relative to now, for people. Otherwise it is
// exact (RFC 3339, UTC).
func Moment(t, now time.Time, terminal bool) string {
	if t.IsZero() {
		return ""
	}
	if !terminal {
		return t.UTC().Format(time.RFC3339)
	}
	if d := now.Sub(t); d >= 0 {
		return roughly(d) + " ago"
	}
	return "in " + roughly(t.Sub(now))
}

// roughly formats d in the way that kubectl formats ages: with one unit, or with two if the number
// of the first unit is small.
func roughly(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}
