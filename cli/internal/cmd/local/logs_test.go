package local

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestLastLines checks where the last lines of a file begin: in files with and without a last newline, and across blocks of a read.
func TestLastLines(t *testing.T) {
	t.Parallel()
	const block = 64 << 10
	long := strings.Repeat("x", block)
	for _, tt := range []struct {
		text  string
		lines int
		want  string
	}{
		{"", 1, ""}, {"\n", 1, "\n"}, {"a", 1, "a"}, {"a\n", 1, "a\n"}, {"a\nb", 1, "b"}, {"a\nb\n", 1, "b\n"}, {"a\nb\n", 2, "a\nb\n"}, {"a\nb\n", 3, "a\nb\n"},
		{"a\n\n", 1, "\n"}, {"a\n\nb\n", 2, "\nb\n"}, {"a\nb\nc", 2, "b\nc"},
		{"a\n" + long, 1, long}, {"a\n" + long[1:], 1, long[1:]}, {"a\n" + long[2:] + "\n", 1, long[2:] + "\n"}, {"a\n" + long[1:] + "\n", 1, long[1:] + "\n"},
		{"a\n" + long + long + "\nb\n", 2, long + long + "\nb\n"}, {"a\n" + long + long + "\nb\n", 3, "a\n" + long + long + "\nb\n"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		must.Do(t, os.WriteFile(path, []byte(tt.text), 0o600))
		file, err := os.Open(path)
		must.Do(t, err)
		must.Do(t, seekLines(file, tt.lines))
		got, err := io.ReadAll(file)
		must.Do(t, err)
		must.Do(t, file.Close())
		if string(got) != tt.want {
			t.Errorf("%d lines of %d bytes: got %d bytes, want %d: %.20q", tt.lines, len(tt.text), len(got), len(tt.want), got)
		}
		must.Is(t, seekLines(file, tt.lines), os.ErrClosed)
	}
}

// Lines are shown when their end has arrived, however long they are, and nothing of them drives the terminal.
func TestLinesOfALog(t *testing.T) {
	t.Parallel()
	in, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must.Do(t, err)
	defer in.Close()
	from, err := os.Open(in.Name())
	must.Do(t, err)
	defer from.Close()
	var out strings.Builder
	lines := &logLines{from: bufio.NewReaderSize(from, 16), to: &out}
	long := strings.Repeat("0123456789", 10)
	for _, tt := range []struct {
		written string
		isLast  bool
		want    string
	}{
		{"", false, ""}, {"", true, ""}, {"a\n", false, "a\n"}, {"b", false, ""}, {"c\nd", false, "bc\n"}, {"", true, "d\n"},
		{long, false, ""}, {long + "\n\n", false, long + long + "\n\n"}, {"\x1b[2J\n", true, cmdutil.Printable("\x1b[2J") + "\n"}, {"e\nf", true, "e\nf\n"},
	} {
		out.Reset()
		_, err := in.WriteString(tt.written)
		must.Do(t, err)
		must.Do(t, lines.copy(tt.isLast))
		if out.String() != tt.want {
			t.Errorf("%q, the last: %t: got %q, want %q", tt.written, tt.isLast, out.String(), tt.want)
		}
	}
	lines.to = &fullAfter{n: 1}
	_, err = in.WriteString("g\nh\n")
	must.Do(t, err)
	must.Is(t, lines.copy(false), errFull)
	lines.from, lines.to = bufio.NewReader(from), &out
	must.Do(t, from.Close())
	must.Is(t, lines.copy(true), os.ErrClosed)
}

// A shell reads the values of the variables as they are.
func TestExports(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	record := localcloud.Record{Env: []string{"A=b", "C=d=e f", "G=it's", "H=", "I"}}
	must.Do(t, writeExports(&out, record))
	if diff := cmp.Diff("export A=b\nexport C='d=e f'\nexport G='it'\\''s'\nexport H=''\nexport I=''\n", out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must.Is(t, writeExports(&fullAfter{}, record), errFull)
}

// Paths of the flags are whole, because another process has another current directory, and each flag names the form of its value.
func TestFlagsOfMountsAndServices(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	must.Do(t, err)
	var mounts allowedMounts
	var services hostServices
	for _, value := range []string{"data", "data:rw", ":ro"} {
		must.Do(t, mounts.Set(value))
	}
	for _, value := range []string{"db=127.0.0.1:5432", "db:1=unix:run/db.sock", "c=d=e"} {
		must.Do(t, services.Set(value))
	}
	data := filepath.Join(here, "data")
	if diff := cmp.Diff([]string{data, data + ":rw", filepath.Join(here, ":ro")}, []string{mounts[0].String(), mounts[1].String(), mounts[2].String()}); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	socket := "db:1=unix:" + filepath.Join(here, "run/db.sock")
	want := []string{"--host-service", "db=127.0.0.1:5432", "--host-service", socket, "--host-service", "c=d=e"}
	if diff := cmp.Diff(want, services.arguments()); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	if got := services.String(); got != "db=127.0.0.1:5432,"+socket+",c=d=e" {
		t.Errorf("got the services %s", got)
	}
	for _, value := range []string{"", ":rw"} {
		if err := mounts.Set(value); err == nil || !strings.HasPrefix(err.Error(), "want a directory") {
			t.Errorf("the mount %q: got error %v", value, err)
		}
	}
	for _, value := range []string{"", "db", "=a", "db="} {
		if err := services.Set(value); err == nil || !strings.HasPrefix(err.Error(), "want NAME=ADDRESS") {
			t.Errorf("the service %q: got error %v", value, err)
		}
	}
	if len(mounts.options()) != 3 || len(services.options()) != 3 || len(mounts) != 3 || len(services) != 3 {
		t.Errorf("got %d mounts and %d services, want 3 of each", len(mounts), len(services))
	}
}
