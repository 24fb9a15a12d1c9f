package cmdutil

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/internal/must"
)

// withFlags returns a Factory and the output of a command, with global flags from a command line. The error is that of the flags.
func withFlags(t *testing.T, command, args string) (f *Factory, out *bytes.Buffer, err error) {
	t.Helper()
	out = new(bytes.Buffer)
	f = NewFactory(NewIOStreams(nil, out, io.Discard), func(err error) ErrorView { return ErrorView{Code: "c", Message: err.Error()} })
	root := &cobra.Command{Use: "e2bctl", SilenceErrors: true, SilenceUsage: true}
	f.AddFlags(root)
	at := root
	for word := range strings.FieldsSeq(command) {
		next := &cobra.Command{Use: word, RunE: func(cmd *cobra.Command, _ []string) error { return f.Begin(cmd) }}
		at.AddCommand(next)
		at = next
	}
	root.SetArgs(append(strings.Fields(command), strings.Split(args, "|")...))
	if args == "" {
		root.SetArgs(strings.Fields(command))
	}
	return f, out, root.ExecuteContext(t.Context())
}

// TestFormats checks what each format makes of results, and the commands that it refuses.
func TestFormats(t *testing.T) {
	t.Parallel()
	type item struct {
		ID    string `json:"sandboxID,omitempty"`
		PID   int    `json:"pid,omitempty"`
		Size  int64  `json:"size,omitempty"`
		Error any    `json:"error,omitempty"`
	}
	const big = 1<<62 + 1
	list := []item{{ID: "i1", PID: 7, Size: big}, {ID: "i2", Error: "x"}, {ID: "i\x1b3"}}
	const plain = "{\n  \"sandboxID\": \"i1\",\n  \"pid\": 7,\n  \"size\": 4611686018427387905\n}\n"
	for _, tt := range []struct{ command, args, one, many, err string }{
		{command: "ls", one: plain},
		{"ls", "-o|json", plain, "", ""},
		{"ls", "-o|jsonl", `{"sandboxID":"i1","pid":7,"size":4611686018427387905}` + "\n", `{"sandboxID":"i1","pid":7,"size":4611686018427387905}` + "\n" + `{"sandboxID":"i2","error":"x"}` + "\n" + `{"sandboxID":"i\u001b3"}` + "\n", ""},
		{"ls", "-o|name", "i1\n", "i1\ni3\n", ""},
		{"proc ls", "-o|name", "7\n", "7\n", ""},
		{"ls", "--jq|.size", "4611686018427387905\n", "", ""},
		{"ls", "--jq|.[].sandboxID|-o|json", "", "i1\ni2\ni\x1b3\n", ""},
		{"ls", "--jq|.sandboxID|-o|jsonl", "i1\n", "i1\ni2\ni\x1b3\n", ""},
		{"ls", "--jq|{a:.pid}", "{\"a\":7}\n", "", ""},
		{"ls", "--jq|1,halt,2", "1\n", "1\n", ""},
		{"ls", "--jq|error(\"no\")", "--jq error(\"no\"): error: no", "", ""},
		{"ls", "--jq|halt_error", "--jq halt_error: ", "", ""},
		{"ls", "--jq|.pid|-o|name", "", "", "--jq works on JSON: leave -o name out"},
		{"ls", "--jq|.pid|-o|table", "", "", "--jq works on JSON: leave -o table out"},
		{"cp", "--jq|.pid", "", "", "--jq needs a result in JSON, and cp has none"},
		{"completion bash", "--jq|.pid", "", "", "and completion bash has none"},
		{"cp", "-o|name", "", "", "-o name: the result of cp has no names; -o json has all of it"},
		{"ls", "--jq|[", "", "", "unexpected EOF"},
		{"ls", "--jq|nothing", "", "", "function not defined"},
		{"ls", "-o|x", "", "", "want table, wide, json, jsonl or name"},
		{"ls", "--env-file|a|--no-env-file", "", "", "env-file no-env-file"},
	} {
		for i, write := range []func(io.Writer, any) error{WriteJSON, WriteJSONLine} {
			f, out, err := withFlags(t, tt.command, tt.args)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("%s %s: got error %v, want %q", tt.command, tt.args, err, tt.err)
			}
			if err != nil {
				break
			}
			for want, v := range map[string]any{tt.one: list[0], tt.many: list} {
				if out.Reset(); want == "" {
					continue
				}
				if err := write(f.IO.Out, v); err != nil {
					out.WriteString(err.Error())
				}
				if want == plain && i > 0 {
					want = `{"sandboxID":"i1","pid":7,"size":4611686018427387905}` + "\n"
				}
				if whole := strings.HasSuffix(want, "\n"); out.String() != want && (whole || !strings.HasPrefix(out.String(), want)) {
					t.Errorf("%s %s: got %q, want %q", tt.command, tt.args, out, want)
				}
			}
		}
	}
}

// TestFormatFlags checks the answers that follow from the flags of the output.
func TestFormatFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]struct{ json, errors, lines, wide, quiet, verbose bool }{
		"": {}, "-o|wide": {wide: true}, "-o|json": {json: true, errors: true}, "-o|jsonl": {json: true, errors: true, lines: true},
		"-o|name": {json: true}, "-q": {quiet: true}, "-v": {verbose: true}, "--jq|.": {json: true, errors: true},
	} {
		f, out, err := withFlags(t, "ls", args)
		must.Do(t, err)
		f.IO.Err = out
		got := struct{ json, errors, lines, wide, quiet, verbose bool }{f.JSON(), f.JSONErrors(), f.JSONLines(), f.Wide(), f.Quiet(), f.Verbose()}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", args, got, want)
		}
		if (f.Progress() == out) == want.quiet {
			t.Errorf("%s: progress goes to %v", args, f.Progress())
		}
		if enabled := f.Logger().Enabled(t.Context(), -4); enabled != want.verbose {
			t.Errorf("%s: requests are logged: %v", args, enabled)
		}
	}
	for args, want := range map[string]outputFormat{"--unknown -o json": outputJSON, "-x --output=jsonl more": outputLines, "--jq .a --what": outputJSON, "--jq .a -o wide": outputWide, "a": outputTable} {
		f := NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil)
		if f.ReadOutputFlag(strings.Fields(args)); f.flags.output != want || f.flags.annotate {
			t.Errorf("%s: got %s, want %s", args, f.flags.output, want)
		}
	}
	f := NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil)
	if f.ReadOutputFlag([]string{"--x", "--annotate"}); !f.flags.annotate {
		t.Error("--annotate is not read")
	}
	for _, format := range OutputFormats() {
		if o := outputFormat(""); o.Set(format) != nil || o.String() != format {
			t.Errorf("%s: got %s", format, &o)
		}
	}
}

// TestNamesOfResults checks that each command with names has a member for them, and that a terminal receives no escapes.
func TestNamesOfResults(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"ls": "sandboxID", "network set": "sandboxID", "proc ls": "pid", "snapshot ls": "snapshotID", "template build": "templateID", "template tag ls": "tag",
		"template tag add": "buildID", "api-key ls": "id", "secret set": "secretID", "volume create": "volumeID", "volume ls": "volumeID path",
		"fs stat": "path", "mcp install": "file", "local ask ls": "address", "local status": "url", "proc kill": "name", "cp": "", "run": "",
	} {
		if got := strings.Join(nameKeys(command), " "); got != want {
			t.Errorf("%s: got %s, want %s", command, got, want)
		}
	}
	for command, want := range map[string]bool{"ls": true, "code repl": false, "completion zsh": false, "mcp install": true, "volume cp": false} {
		if got := hasJSON(command); got != want {
			t.Errorf("%s: has JSON: %v", command, got)
		}
	}
	f, out, err := withFlags(t, "volume ls", "-o|name")
	must.Do(t, err)
	must.Do(t, WriteJSON(f.IO.Out, []map[string]any{{"path": "/a"}, {"volumeID": "v", "path": "/b"}, {"other": "x"}, {"path": "\x1bred"}}))
	if got := out.String(); got != "/a\nv\nred\n" {
		t.Errorf("got the names %q", got)
	}
	if err := WriteJSON(f.IO.Out, "text"); err == nil {
		t.Error("the name of a text was found")
	}
	f, out, err = withFlags(t, "ls", "--jq|.")
	must.Do(t, err)
	f.IO.Out.(*results).terminal = true
	must.Do(t, WriteJSON(f.IO.Out, "\x1b[1mred"))
	if got := out.String(); got != "[1mred\n" {
		t.Errorf("a terminal receives %q", got)
	}
	for _, args := range []string{"-o|name", "-o|jsonl", "--jq|.sandboxID", "--jq|.", "--jq|., halt", "-o|json"} {
		f, _, err := withFlags(t, "ls", args)
		must.Do(t, err)
		if r, ok := f.IO.Out.(*results); ok {
			r.Writer = full{}
		} else {
			f.IO.Out = full{}
		}
		if err := WriteJSON(f.IO.Out, map[string]string{"sandboxID": "i1"}); !errors.Is(err, errFull) {
			t.Errorf("%s: a full disk causes error %v", args, err)
		}
		if err := WriteJSON(f.IO.Out, func() {}); err == nil {
			t.Errorf("%s: a function was written as JSON", args)
		}
	}
}

// full is a writer of a full disk.
type full struct{}

var errFull = iotest.ErrTimeout

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestListFormats checks what each format makes of a list, and that it reports a full disk.
func TestListFormats(t *testing.T) {
	t.Parallel()
	l := List{Kind: "files", Views: []string{"v"}, Names: []string{"n\x1b1", "n2"}, Header: []string{"A", "B", "NAME"}, Rows: [][]string{{"1", "2", "a-long-name-of-thirty-columns-x"}}, LongNames: true, Spare: []string{"B"}}
	for args, want := range map[string]string{
		"-o|json":         "[\n  \"v\"\n]\n",
		"-q":              "n1\nn2\n",
		"":                "A   NAME\n1   a-long-name…-columns-x\n",
		"-o|wide":         "A   B   NAME\n1   2   a-long-name-of-thirty-columns-x\n",
		"--no-headers":    "1   2   a-long-name-of-thirty-columns-x\n",
		"--no-headers|-q": "n1\nn2\n",
	} {
		f, out, err := withFlags(t, "fs ls", args)
		must.Do(t, err)
		f.IO.OutWidth = 26
		must.Do(t, f.WriteList(l))
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", args, diff)
		}
		if r, ok := f.IO.Out.(*results); ok {
			r.Writer = full{}
		} else {
			f.IO.Out = full{}
		}
		must.Is(t, f.WriteList(l), errFull)
	}
	f, out, err := withFlags(t, "fs ls", "--no-headers")
	must.Do(t, err)
	must.Do(t, f.WriteList(List{Views: []string{}, Header: []string{"A"}}))
	if out.Len() > 0 {
		t.Errorf("an empty list without headers is %q", out)
	}
	rows := &Rows{Out: f.IO.Out, Width: 10, Header: []string{"ID", "DETAILS"}, Widths: []int{4}}
	must.Do(t, rows.Write([]string{"i1", "a long text that stays on a line"}))
	must.Do(t, rows.Write([]string{"i2", ""}))
	if got := out.String(); got != "i1     a long text that stays on a line\ni2     -\n" {
		t.Errorf("got the rows %q", got)
	}
	for _, rows := range []*Rows{{Out: full{}, Header: []string{"A"}}, {Out: full{}, Width: 5, Header: []string{"A"}, begun: true}} {
		must.Is(t, rows.Write([]string{strings.Repeat("w", 30)}), errFull)
	}
}

// TestStreams checks the streams of a command: that a lost reader is noticed, and where commands for a runner go.
func TestStreams(t *testing.T) {
	t.Setenv("GITHUB_ACTIONS", "")
	reader, writer, err := os.Pipe()
	must.Do(t, err)
	defer writer.Close()
	var ios IOStreams
	ios.Out = &pipeWriter{file: writer, closed: &ios.outClosed}
	ios.OutWidth = 7
	if ios.Measure(); ios.OutWidth != 0 {
		t.Errorf("a pipe has the width %d", ios.OutWidth)
	}
	ios.OutWidth = 7
	wrapped := IOStreams{Out: &results{Writer: ios.Out}, OutWidth: 7}
	if wrapped.Measure(); wrapped.OutWidth != 0 {
		t.Errorf("a pipe behind a format has the width %d", wrapped.OutWidth)
	}
	if _, err := ios.Out.Write([]byte("x")); err != nil || ios.OutClosed() {
		t.Errorf("with a reader: got error %v, closed %v", err, ios.OutClosed())
	}
	must.Do(t, reader.Close())
	if _, err := ios.Out.Write([]byte("x")); err == nil || !ios.OutClosed() {
		t.Errorf("without a reader: got error %v, closed %v", err, ios.OutClosed())
	}
	system := SystemStreams()
	if out, ok := system.Out.(*pipeWriter); !ok || out.file != os.Stdout || out.closed != &system.outClosed {
		t.Errorf("the output of the process is %+v", system.Out)
	}
	if system.In != os.Stdin || system.RawErr != os.Stderr || !system.OfProcess {
		t.Errorf("the streams of the process are %v and %v", system.In, system.RawErr)
	}
	if _, err := (&results{Writer: new(bytes.Buffer)}).SyscallConn(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got error %v of a buffer", err)
	}
	if n, err := NewIOStreams(nil, nil, nil).In.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("no input has %d bytes and error %v", n, err)
	}
	if with := NewIOStreams(strings.NewReader(""), nil, nil); !with.InIsData || NewIOStreams(nil, nil, nil).InIsData {
		t.Error("input is no data, or none is")
	}
	for _, actions := range []bool{false, true} {
		if actions {
			t.Setenv("GITHUB_ACTIONS", "true")
		}
		var log bytes.Buffer
		f := NewFactory(NewIOStreams(nil, nil, &log), nil)
		f.flags.annotate = true
		_, _ = io.WriteString(f.IO.Err, "::error::x\n")
		_, _ = io.WriteString(f.IO.RawErr, "::raw\n")
		f.Group("title")()
		f.Annotate("bad")
		want := "::error::x\n::raw\n"
		if actions {
			want = "\\::error::x\n::raw\n::group::title\n::endgroup::\n::error title=e2bctl::bad\n"
		}
		if log.String() != want {
			t.Errorf("in Actions %v: got %q, want %q", actions, &log, want)
		}
	}
}
