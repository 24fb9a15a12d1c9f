package cmdutil

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain é 漢字":               "plain é 漢字",
		"\x1b[31mred\x1b[0m":       "[31mred[0m",
		"a\tb\r\nc":                "a b\nc",
		"\u009b2Jx\x7f\x00\u2028y": "2Jxy",
		"abc\u202edcba":            "abcdcba",
		"a\x7fb":                   "ab",
		"a\x1fb\x80":               "ab\uFFFD",
		"broken \xff":              "broken \uFFFD",
	} {
		if got := Printable(in); got != want {
			t.Errorf("printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzCellText(f *testing.F) {
	f.Add("\x1b]8;;http://x\x07y")
	f.Fuzz(func(t *testing.T, text string) {
		got := cellText(text)
		if got == "" {
			t.Fatalf("cellText(%q) is empty, want at least a hyphen", text)
		}
		if !utf8.ValidString(got) {
			t.Fatalf("cellText(%q) = %q, want UTF-8", text, got)
		}
		if i := strings.IndexAny(got, "\n\r\t\x1b\x07\x00"); i >= 0 {
			t.Fatalf("cellText(%q) = %q, want no %q in a cell", text, got, got[i])
		}
	})
}

func TestMoment(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("", 3600))
	tests := []struct {
		at       time.Time
		terminal bool
		want     string
	}{
		{time.Time{}, true, ""},
		{now, false, "2026-11-21T11:00:00Z"},
		{now.Add(-30 * time.Second), true, "30s ago"},
		{now.Add(5*time.Minute + 7*time.Second), true, "in 5m7s"},
		{now.Add(-90 * time.Minute), true, "90m ago"},
		{now.Add(47 * time.Hour), true, "in 47h"},
		{now.Add(-72 * time.Hour), true, "3d ago"},
		{now, true, "0s ago"},
		{now.Add(2*time.Minute - 1), true, "in 119s"},
		{now.Add(2 * time.Minute), true, "in 2m0s"},
		{now.Add(10*time.Minute - 1), true, "in 9m59s"},
		{now.Add(10 * time.Minute), true, "in 10m"},
		{now.Add(2*time.Hour - 1), true, "in 119m"},
		{now.Add(2 * time.Hour), true, "in 2h"},
		{now.Add(48*time.Hour - 1), true, "in 47h"},
		{now.Add(48 * time.Hour), true, "in 2d"},
	}
	for _, tt := range tests {
		if got := Moment(tt.at, now, tt.terminal); got != tt.want {
			t.Errorf("moment(%v, terminal %v) = %q, want %q", tt.at.Sub(now), tt.terminal, got, tt.want)
		}
	}
}

// A table fits the width, as far as its words do. Without a width it has one line a row.
func TestWriteTable(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{
		0:  "CHECK   DETAIL\na       one two three-four-five six\nb       -\n",
		26: "CHECK   DETAIL\na       one two\n        three-four-five\n        six\nb       -\n",
		24: "CHECK   DETAIL\na       one two\n        three-four-five\n        six\nb       -\n",
	} {
		rows := [][]string{{"a", "one two three-four-five six"}, {"b", ""}}
		if got := table(t, width, []string{"CHECK", "DETAIL"}, rows); got != want {
			t.Errorf("width %d: got\n%s, want\n%s", width, got, want)
		}
	}
}

// Characters that take two columns of a terminal, or none, are counted as such, so that columns
// stay aligned and lines fit.
// The allocations of a table that is not for a terminal do not grow with its rows.
func TestTableAllocations(t *testing.T) {
	rows := make([][]string, 1000)
	for i := range rows {
		rows[i] = []string{"iucbjtmx8qb7t4lytb2a3", "base", "running", ""}
	}
	const most = 20 // 8 now
	got := testing.AllocsPerRun(5, func() {
		must.Do(t, WriteTable(io.Discard, 0, []string{"ID", "TEMPLATE", "STATE", "METADATA"}, rows))
	})
	if got > most {
		t.Errorf("a table of %d rows takes %v allocations, over %d", len(rows), got, most)
	}
}

func TestWriteTableOfWideText(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{
		0:  "NAME        DETAIL\n日本語      東京 大阪\ne\u0301te\u0301\u200d         one\n😀 ab       two\nfullwidth   three\n",
		20: "NAME        DETAIL\n日本語      東京\n            大阪\ne\u0301te\u0301\u200d         one\n😀 ab       two\nfullwidth   three\n",
		17: "NAME     日本語\nDETAIL   東京\n         大阪\n\nNAME     e\u0301te\u0301\u200d\nDETAIL   one\n\nNAME     😀 ab\nDETAIL   two\n\nNAME     fullwidth\nDETAIL   three\n",
	} {
		rows := [][]string{{"日本語", "東京 大阪"}, {"e\u0301te\u0301\u200d", "one"}, {"😀 ab", "two"}, {"fullwidth", "three"}}
		if got := table(t, width, []string{"NAME", "DETAIL"}, rows); got != want {
			t.Errorf("width %d: got\n%s, want\n%s", width, got, want)
		}
	}
}

// Rows that do not fit become blocks, whose IDs are whole.
func TestWriteTableOfBlocks(t *testing.T) {
	t.Parallel()
	const want = "ID      i0123456789\nNAME    first one\nSTATE   up\n\nID      i9876543210\nNAME    -\nSTATE   a state of\n        some words\n"
	rows := [][]string{{"i0123456789", "first one", "up"}, {"i9876543210", "", "a state of some words"}}
	if got := table(t, 20, []string{"ID", "NAME", "STATE"}, rows); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

// A number stays on the line of its unit.
func TestWriteTableOfSizes(t *testing.T) {
	t.Parallel()
	want := "CPU    MEMORY\n1.0%   7 of\n       2048 MiB\n"
	if got := table(t, 17, []string{"CPU", "MEMORY"}, [][]string{{"1.0%", "7 of 2048 MiB"}}); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	want = "KEPT    layers\nCOUNT   1\nSIZE    668 KiB\n"
	if got := table(t, 20, []string{"KEPT", "COUNT", "SIZE"}, [][]string{{"layers", "1", "668 KiB"}}); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

func table(t *testing.T, width int, header []string, rows [][]string) string {
	t.Helper()
	var out strings.Builder
	must.Do(t, WriteTable(&out, width, header, rows))
	return out.String()
}

// A terminal of 20 columns has room for an ID, below the name of its column. Other cells stay
// beside theirs.
func TestNarrowTable(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	err := WriteTable(&out, 20, []string{"ID", "METADATA"}, [][]string{{"i0000000000000000001", "a=1, b=two words"}})
	if want := "ID\ni0000000000000000001\nMETADATA   a=1,\n           b=two\n           words\n"; err != nil || out.String() != want {
		t.Errorf("got %q (%v), want %q", &out, err, want)
	}
}

// TestRows checks the rows of a table that grows: they have the columns of the header on a wide terminal,
// and are blocks on a narrow one.
func TestRows(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		width int
		want  string
	}{
		{0, "ID       DETAILS\ni1       a b c\nlonger   d\ni3       averylongwordindeed e\n"},
		{30, "ID       DETAILS\ni1       a b c\nlonger   d\ni3       averylongwordindeed e\n"},
		{24, "ID       DETAILS\ni1       a b c\nlonger   d\n\nID        i3\nDETAILS   averylongwordindeed\n          e\n"},
	} {
		var out bytes.Buffer
		rows := &Rows{Out: &out, Width: tt.width, Header: []string{"ID", "DETAILS"}, Widths: []int{6}}
		for _, row := range [][]string{{"i1", "a b c"}, {"longer", "d"}, {"i3", "averylongwordindeed e"}} {
			must.Do(t, rows.Write(row))
		}
		if out.String() != tt.want {
			t.Errorf("width %d: got\n%swant\n%s", tt.width, &out, tt.want)
		}
	}
}
