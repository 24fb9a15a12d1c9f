package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlFormat is TOML with a table for each server.
type tomlFormat struct {
	servers string // the name of the table that contains the tables of the servers
}

func (f *tomlFormat) entry(name string, s server) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "[%s.%s]\ncommand = %s\nargs = %s\n", f.servers, name, tomlString(s.Command), tomlList(s.Args))
	if len(s.Variables) > 0 {
		fmt.Fprintf(&text, "env_vars = %s\n", tomlList(s.Variables))
	}
	return text.String(), nil
}

// tomlList returns texts as a TOML array.
func tomlList(texts []string) string {
	var quoted []string
	for _, text := range texts {
		quoted = append(quoted, tomlString(text))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// tomlString returns a text as a TOML literal string, which has no escapes. If that is impossible,
// it returns a basic string. It does not use the library's encoder, because the encoder would add
// 100 kB to the binary.
func tomlString(text string) string {
	needsEscape := func(r rune) bool { return r < ' ' || r == '\'' || r == 0x7f }
	if !strings.ContainsFunc(text, needsEscape) {
		return "'" + text + "'"
	}
	quoted := []byte{'"'}
	for _, c := range []byte(text) {
		switch {
		case c == '"' || c == '\\':
			quoted = append(quoted, '\\', c)
		case c < ' ' || c == 0x7f:
			quoted = fmt.Appendf(quoted, `\u%04x`, c)
		default:
			quoted = append(quoted, c)
		}
	}
	return string(append(quoted, '"'))
}

func (f *tomlFormat) values(text []byte) (servers, rest map[string]any, err error) {
	if err := toml.Unmarshal(text, &rest); err != nil {
		message := strings.TrimPrefix(err.Error(), "toml: ")
		if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, column := wrong.Position()
			message = fmt.Sprintf("line %d, column %d: %s", line, column, message)
		}
		return nil, nil, errors.New(message)
	}
	servers, _ = rest[f.servers].(map[string]any)
	delete(rest, f.servers)
	return servers, rest, nil
}

func (f *tomlFormat) edit(text []byte, name string, s server) (edited []byte, existed bool, err error) {
	servers, _, err := f.values(text)
	if err != nil {
		return nil, false, err
	}
	entry, err := f.entry(name, s)
	if err != nil {
		return nil, false, err
	}
	there, existed := servers[name]
	if made, _, err := f.values([]byte(entry)); err != nil || existed && reflect.DeepEqual(there, made[name]) {
		return text, existed, err
	}
	parts, err := f.find(text, name)
	if err != nil {
		return nil, existed, err
	}
	newline := "\n"
	if bytes.Contains(text, []byte("\r\n")) {
		newline = "\r\n"
		entry = strings.ReplaceAll(entry, "\n", newline)
	}
	if at := slices.IndexFunc(parts, func(p tomlPart) bool { return p.isTable }); at >= 0 {
		before, after := text[:parts[at].start], text[parts[at].end:]
		return slices.Concat(cutParts(before, 0, parts[:at]), []byte(entry), cutParts(after, parts[at].end, parts[at+1:])), existed, nil
	}
	edited = cutParts(text, 0, parts)
	if len(edited) > 0 && edited[len(edited)-1] != '\n' {
		edited = append(edited, newline...)
	}
	if len(bytes.TrimSpace(edited)) > 0 {
		edited = append(edited, newline...)
	}
	return append(edited, entry...), existed, nil
}

// cutParts returns end without the given parts. end is a text from offset to its end. The offsets in
// parts count from the beginning of that text.
func cutParts(end []byte, offset int, parts []tomlPart) (left []byte) {
	for _, part := range parts {
		left = append(left, end[:part.start-offset]...)
		end, offset = end[part.end-offset:], part.end
	}
	return append(left, end...)
}

// tomlPart is a range of whole lines that belongs to a server.
type tomlPart struct {
	start, end int
	isTable    bool // the part begins with the header of a table
}

// find returns the parts of a valid text that belong to the server called name. A comment between
// the lines of a part belongs to that part. Any other comment belongs to the text after it.
func (f *tomlFormat) find(text []byte, name string) (parts []tomlPart, err error) {
	var table []string // the one that the line is in
	parser := unstable.Parser{}
	parser.Reset(text)
	inTable := false // the line before belongs to a table of the server
	for parser.NextExpression() {
		expression := parser.Expression()
		key, start, end := keyOf(expression)
		isTable := expression.Kind != unstable.KeyValue
		path := slices.Concat(table, key)
		if isTable {
			table, path = key, key
		}
		if len(path) == 1 && path[0] == f.servers && expression.Kind != unstable.Table {
			return nil, fmt.Errorf("%s: %s is a value or a list, not a table, and e2bctl does not change it: add the output of --print by hand", position(text, start), f.servers)
		}
		isPart := len(path) > 1 && path[0] == f.servers && path[1] == name
		part := tomlPart{lineStart(text, start), lineEnd(text, end), isTable}
		switch {
		case isPart && inTable:
			parts[len(parts)-1].end = part.end
		case isPart:
			parts = append(parts, part)
		}
		inTable = isPart && (isTable || inTable)
	}
	return parts, parser.Error()
}

// keyOf returns the key of a line. start is the offset of the key. end is the offset after the value,
// or after the key if there is no value. A comment on the line is not included.
func keyOf(expression *unstable.Node) (key []string, start, end int) {
	start = -1
	for keys := expression.Key(); keys.Next(); {
		node := keys.Node()
		key = append(key, string(node.Data))
		if start < 0 {
			start = int(node.Raw.Offset)
		}
		end = int(node.Raw.Offset + node.Raw.Length)
	}
	if expression.Kind == unstable.KeyValue {
		end = int(expression.Raw.Offset + expression.Raw.Length)
	}
	return key, start, end
}

// lineStart returns the offset of the first byte of a line.
func lineStart(text []byte, offset int) int {
	return bytes.LastIndexByte(text[:offset], '\n') + 1
}

// lineEnd returns the offset after the last byte of a line.
func lineEnd(text []byte, offset int) int {
	if end := bytes.IndexByte(text[offset:], '\n'); end >= 0 {
		return offset + end + 1
	}
	return len(text)
}
