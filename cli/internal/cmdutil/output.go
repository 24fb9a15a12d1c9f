package cmdutil

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

// outputFormat is the value of -o.
type outputFormat string

const (
	outputTable outputFormat = "table"
	outputJSON  outputFormat = "json"
)

func (o *outputFormat) String() string { return string(*o) }
func (o *outputFormat) Type() string   { return "table|json" }

func (o *outputFormat) Set(value string) error {
	switch format := outputFormat(value); format {
	case outputTable, outputJSON:
		*o = format
		return nil
	}
	return fmt.Errorf("want table or json")
}

// WriteJSON writes v as one indented JSON document. It escapes everything that
// a terminal may act on, including what JSON allows in strings, and bytes that
// are not UTF-8.
func WriteJSON(w io.Writer, v any) error {
	enc := newEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// WriteJSONLine is [WriteJSON] for one of several documents, each on a line.
func WriteJSONLine(w io.Writer, v any) error { return newEncoder(w).Encode(v) }

func newEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(activeEscaper{w})
	enc.SetEscapeHTML(false)
	return enc
}

// activeEscaper escapes what a terminal may act on in a JSON document, which an
// encoder writes in one call. Outside of strings there is none of it except
// newlines.
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

// WriteTable writes rows under header as kubectl does: upper case, three
// spaces, no borders. Cells are made Printable here, so that text from a
// service or a sandbox cannot forge a row.
func WriteTable(w io.Writer, header []string, rows [][]string) error {
	return WriteTableWithin(w, 0, header, rows)
}

// WriteTableWithin is WriteTable for a last column of sentences. They are broken
// between words, so that the table is at most width columns wide. Words stay whole.
// With a width of 0, each row is one line.
func WriteTableWithin(w io.Writer, width int, header []string, rows [][]string) error {
	last := len(header) - 1
	room := width
	cells := make([][]string, len(rows))
	for i, row := range rows {
		cells[i] = make([]string, len(row))
		for j, cell := range row {
			cells[i][j] = cellText(cell)
		}
	}
	for column := range last {
		widest := utf8.RuneCountInString(header[column])
		for _, row := range cells {
			widest = max(widest, utf8.RuneCountInString(row[column]))
		}
		room -= widest + tablePadding
	}
	tw := tabwriter.NewWriter(w, 0, 0, tablePadding, ' ', 0)
	fmt.Fprintln(tw, strings.Join(header, "\t"))
	for _, row := range cells {
		lines := []string{row[last]}
		if width > 0 {
			lines = linesOf(row[last], room)
		}
		fmt.Fprintln(tw, strings.Join(append(row[:last:last], lines[0]), "\t"))
		for _, line := range lines[1:] {
			fmt.Fprintln(tw, strings.Repeat("\t", last)+line)
		}
	}
	return tw.Flush()
}

// tablePadding is the space between two columns.
const tablePadding = 3

// linesOf breaks a text that is not empty between words, into lines of at most
// width characters or of one word.
func linesOf(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}

func cellText(s string) string {
	s = strings.ReplaceAll(Printable(s), "\n", " ")
	if s == "" {
		return "-"
	}
	return s
}

// Printable returns s without what a terminal would act on: control characters,
// including ANSI escapes, and the marks that reorder text. Newlines stay, tabs
// become spaces, and invalid UTF-8 becomes U+FFFD.
func Printable(s string) string {
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

// IsActive reports whether a terminal may do anything with r other than show
// it.
func IsActive(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// Moment writes a time relative to now on a terminal, for people, and exactly
// (RFC 3339, UTC) elsewhere.
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

// roughly writes d as kubectl writes ages: one unit, or two when the first is
// small.
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
