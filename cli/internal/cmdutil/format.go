package cmdutil

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/itchyny/gojq"
	"github.com/spf13/cobra"
)

// outputFormat is the value of -o.
type outputFormat string

const (
	outputTable outputFormat = "table"
	outputWide  outputFormat = "wide"
	outputJSON  outputFormat = "json"
	outputLines outputFormat = "jsonl"
	outputName  outputFormat = "name"
)

// OutputFormats returns the values of -o in the order of the help.
func OutputFormats() []string { return []string{"table", "wide", "json", "jsonl", "name"} }

func (o *outputFormat) String() string { return string(*o) }
func (o *outputFormat) Type() string   { return strings.Join(OutputFormats(), "|") }

func (o *outputFormat) Set(value string) error {
	if !slices.Contains(OutputFormats(), value) {
		return errors.New("want table, wide, json, jsonl or name")
	}
	*o = outputFormat(value)
	return nil
}

// jqFilter is the value of --jq.
type jqFilter struct {
	text string
	code *gojq.Code // the compiled filter; nil: there is none
}

func (q *jqFilter) String() string { return q.text }
func (q *jqFilter) Type() string   { return "EXPR" }

func (q *jqFilter) Set(value string) error {
	query, err := gojq.Parse(value)
	if err != nil {
		return err
	}
	q.text = value
	q.code, err = gojq.Compile(query, gojq.WithEnvironLoader(os.Environ))
	return err
}

// nameKeys returns the names of the JSON members that -o name prints for a command. It returns nil
// if the results of the command have no names.
func nameKeys(command string) []string {
	switch command {
	case "ls", "create", "info", "fork", "pause", "resume", "wait", "timeout", "resize", "events", "network get", "network set":
		return []string{"sandboxID"}
	case "proc ls":
		return []string{"pid"}
	case "snapshot create", "snapshot ls":
		return []string{"snapshotID"}
	case "template build", "template ls", "template info":
		return []string{"templateID"}
	case "template tag ls":
		return []string{"tag"}
	case "template tag add":
		return []string{"buildID"}
	case "api-key create", "api-key ls":
		return []string{"id"}
	case "secret create", "secret set", "secret ls":
		return []string{"secretID"}
	case "volume create":
		return []string{"volumeID"}
	case "volume ls":
		return []string{"volumeID", "path"} // volumes, or the entries of one
	case "fs ls", "fs stat":
		return []string{"path"}
	case "mcp install":
		return []string{"file"}
	case "local ask ls", "local ask forget":
		return []string{"address"}
	case "local status":
		return []string{"url"}
	case "kill", "snapshot rm", "template rm", "api-key delete", "volume rm", "secret rm", "proc kill":
		return []string{"name"}
	}
	return nil
}

// hasJSON reports whether a command has a result that can be JSON.
func hasJSON(command string) bool {
	return !slices.Contains([]string{"code repl", "cp", "fs cat", "local logs", "mcp", "proc attach", "ssh-proxy", "volume cp"}, command) && !strings.HasPrefix(command, "completion")
}

// Begin checks the output flags for cmd, and sets the format of its results. It is called after the
// command line was parsed and before the command runs.
func (f *Factory) Begin(cmd *cobra.Command) error {
	command := strings.TrimPrefix(cmd.CommandPath(), "e2bctl ")
	r := &results{Writer: f.IO.Out, terminal: f.IO.OutIsTerminal, format: f.flags.output, noHeaders: f.flags.noHeaders}
	if f.flags.jq.code != nil {
		switch {
		case !hasJSON(command):
			return fmt.Errorf("--jq needs a result in JSON, and %s has none", command)
		case !cmd.Flags().Changed("output"):
			f.flags.output, r.format = outputJSON, outputJSON
		case r.format != outputJSON && r.format != outputLines:
			return fmt.Errorf("--jq works on JSON: leave -o %s out, or use -o json or jsonl", r.format)
		}
		r.filter = &f.flags.jq
	}
	if r.format == outputName {
		if r.names = nameKeys(command); r.names == nil {
			return fmt.Errorf("-o name: the result of %s has no names; -o json has all of it", command)
		}
	}
	if r.format == outputLines || r.format == outputName || r.filter != nil || r.noHeaders {
		r.done = cmd.Context
		f.IO.Out = r
	}
	return nil
}

// results is a standard output on which -o, --jq and --no-headers change the format of results.
// [WriteJSON] and [WriteTable] recognize it. It writes other bytes unchanged.
type results struct {
	io.Writer
	terminal  bool // the writer is a terminal
	format    outputFormat
	names     []string  // the names of the JSON members that -o name prints
	filter    *jqFilter // nil without --jq
	noHeaders bool
	done      func() context.Context // returns a context whose end stops the filter of --jq
}

// SyscallConn implements [syscall.Conn], so that [WatchReader] can watch the reader.
func (r *results) SyscallConn() (syscall.RawConn, error) {
	if conn, ok := r.Writer.(syscall.Conn); ok {
		return conn.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// formatted writes v and returns true if w has a format other than plain JSON. Otherwise it writes
// nothing.
func formatted(w io.Writer, v any) (done bool, err error) {
	r, ok := w.(*results)
	if !ok || r.format == outputJSON && r.filter == nil {
		return false, nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return true, err
	}
	documents := []json.RawMessage{text}
	if r.format != outputJSON && text[0] == '[' {
		if err := json.Unmarshal(text, &documents); err != nil {
			return true, err
		}
	}
	for _, document := range documents {
		if err := r.write(document); err != nil {
			return true, err
		}
	}
	return true, nil
}

// write writes one document as one line of JSON, as the name in it, or as the results of the
// filter.
func (r *results) write(document json.RawMessage) error {
	switch {
	case r.format == outputName:
		return r.writeName(document)
	case r.filter != nil:
		return r.writeFiltered(document)
	}
	return newEncoder(r.Writer).Encode(document)
}

// writeName writes the name in a document. It writes nothing for a target for which the command
// failed.
func (r *results) writeName(document json.RawMessage) error {
	var members map[string]any
	if err := json.Unmarshal(document, &members); err != nil {
		return err
	}
	if members["error"] != nil {
		return nil
	}
	for _, key := range r.names {
		switch name := members[key].(type) {
		case string:
			_, err := fmt.Fprintln(r.Writer, Printable(name))
			return err
		case float64: // a small number, such as that of a process
			_, err := fmt.Fprintln(r.Writer, int64(name))
			return err
		}
	}
	return nil
}

func (r *results) writeFiltered(document json.RawMessage) error {
	var input any
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber() // sizes may exceed what a float64 holds exactly
	if err := decoder.Decode(&input); err != nil {
		return err
	}
	for found := r.filter.code.RunWithContext(r.done(), input); ; {
		value, ok := found.Next()
		if !ok {
			return nil
		}
		switch value := value.(type) {
		case error:
			if halt, ok := errors.AsType[*gojq.HaltError](value); ok && halt.Value() == nil {
				return nil
			}
			return fmt.Errorf("--jq %s: %w", r.filter.text, value)
		case string:
			if r.terminal {
				value = Printable(value)
			}
			if _, err := fmt.Fprintln(r.Writer, value); err != nil {
				return err
			}
		default:
			text, err := gojq.Marshal(value)
			if err != nil {
				return err
			}
			if err := newEncoder(r.Writer).Encode(json.RawMessage(text)); err != nil {
				return err
			}
		}
	}
}

// withoutHeaders reports whether tables on w have no header.
func withoutHeaders(w io.Writer) bool {
	r, ok := w.(*results)
	return ok && r.noHeaders
}
