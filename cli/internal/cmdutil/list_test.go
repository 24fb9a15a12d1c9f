package cmdutil

import (
	"bytes"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// writeList returns the output of WriteList on a terminal of the given width; 0: no terminal.
func writeList(t *testing.T, width int, l List) (out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	f := &Factory{IO: &IOStreams{Out: &o, Err: &e, OutWidth: width, OutIsTerminal: width > 0}}
	must.Do(t, f.WriteList(l))
	return o.String(), e.String()
}

func TestEmptyList(t *testing.T) {
	t.Parallel()
	l := List{Kind: "volumes", Views: []string{}, Header: []string{"ID", "NAME"}}
	if out, errs := writeList(t, 80, l); out != "" || errs != "No volumes.\n" {
		t.Errorf("on a terminal: %q and %q, want only a sentence on stderr", out, errs)
	}
	if out, errs := writeList(t, 0, l); out != "ID   NAME\n" || errs != "" {
		t.Errorf("in a pipe: %q and %q, want only a header", out, errs)
	}
}

func TestLongNamesOfAList(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long-", 12) + "name.csv"
	l := List{Kind: "files", Header: []string{"SIZE", "NAME"}, Rows: [][]string{{"12", "notes.txt"}, {"7", long}, {"0", "link -> " + long}}, LongNames: true}
	const short = "long-long-long-l…ng-long-name.csv"
	want := "SIZE   NAME\n12     notes.txt\n7      " + short + "\n0      link ->\n       " + short + "\n"
	if got, _ := writeList(t, 40, l); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, _ := writeList(t, 0, l); strings.Count(got, long) != 2 {
		t.Errorf("in a pipe: got\n%s\nwant whole names", got)
	}
	wide := strings.Repeat("長", 20)
	if got := shortened(wide, 11); columns(got) > 11 || !strings.Contains(got, "長…長") {
		t.Errorf("got %q, want at most 11 columns", got)
	}
}

// A narrow terminal leaves spare columns out, and keeps one line for each row.
func TestSpareColumnsOfAList(t *testing.T) {
	t.Parallel()
	l := List{
		Kind: "files", Header: []string{"MODE", "OWNER", "GROUP", "NAME"}, Spare: []string{"GROUP", "OWNER"}, LongNames: true,
		Rows: [][]string{{"-rw-r--r--", "root", "staff", "a-name-of-23-characters"}},
	}
	for width, want := range map[int]string{
		50: "MODE         OWNER   GROUP   NAME\n-rw-r--r--   root    staff   a-name-of-…characters\n",
		43: "MODE         OWNER   NAME\n-rw-r--r--   root    a-name-of-2…characters\n",
		36: "MODE         NAME\n-rw-r--r--   a-name-of-23-characters\n",
		0:  "MODE         OWNER   GROUP   NAME\n-rw-r--r--   root    staff   a-name-of-23-characters\n",
	} {
		if got, _ := writeList(t, width, l); got != want {
			t.Errorf("%d columns: got\n%s\nwant\n%s", width, got, want)
		}
	}
}
