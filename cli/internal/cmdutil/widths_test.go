package cmdutil

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestWidthsOfTables checks the exact widths of a terminal at which a table changes: a word, a column or a whole table
// then has just enough room.
func TestWidthsOfTables(t *testing.T) {
	t.Parallel()
	const id = "i0123456789abcdefghi" // of idColumns
	plain := func(header []string, rows ...[]string) func(int) string {
		return func(width int) string { return table(t, width, header, rows) }
	}
	list := func(l List) func(int) string {
		return func(width int) string {
			out, _ := writeList(t, width, l)
			return out
		}
	}
	growing := func(all ...[]string) func(int) string {
		return func(width int) string {
			var out bytes.Buffer
			rows := &Rows{Out: &out, Width: width, Header: []string{"ID", "DETAILS"}, Widths: []int{6}}
			for _, row := range all {
				must.Do(t, rows.Write(row))
			}
			return out.String()
		}
	}
	files := List{Header: []string{"MODE", "OWNER", "NAME"}, Rows: [][]string{{"-rw-r--r--", "root", strings.Repeat("x", 30)}}, LongNames: true}
	spare := files
	spare.Spare = []string{"OWNER"}
	for name, tt := range map[string]struct {
		write func(width int) string
		want  []int
	}{
		"words":          {plain([]string{"ID", "DETAIL"}, []string{"i1", "one two three"}, []string{"i2", "four"}), []int{12, 18}},
		"IDs":            {plain([]string{"ID", "OF", "STATE"}, []string{id, id, "up and running"}), []int{14, 20, 22, 28, 53, 60}},
		"sizes":          {plain([]string{"CPU", "MEMORY"}, []string{"1.0%", "7 of 2048 MiB"}), []int{11, 20}},
		"blocks":         {plain([]string{"IDENTITY", "OF", "STATE"}, []string{"i1", "a longer text", "up-and-running"}), []int{19, 24, 41}},
		"a long name":    {list(files), []int{25, 38, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51}},
		"a spare column": {list(spare), []int{17, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51}},
		"rows":           {growing([]string{"i1", "a b c"}, []string{"longer than", id + " x"}, []string{"i2", "d"}), []int{13, 15, 16, 20, 21, 22, 30, 32, 34, 36}},
	} {
		var got []int
		for width := 11; width <= 100; width++ {
			if tt.write(width) != tt.write(width-1) {
				got = append(got, width)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s %v", name, diff, got)
		}
	}
}
