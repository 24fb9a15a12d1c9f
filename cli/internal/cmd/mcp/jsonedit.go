package mcp

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/tailscale/hujson"
)

// jsonEditor edits the objects in a JSON text, and keeps to the indentation and line breaks of that
// text.
type jsonEditor struct {
	text    []byte
	unit    string // one level of indentation
	newline string
}

// newJSONEditor returns an editor with the layout of a text, whose root is an object.
func newJSONEditor(text []byte, root hujson.Value) *jsonEditor {
	e := &jsonEditor{text: text, unit: "  ", newline: "\n"}
	if bytes.Contains(text, []byte("\r\n")) {
		e.newline = "\r\n"
	}
	if object, ok := root.Value.(*hujson.Object); ok && len(object.Members) > 0 {
		if first := object.Members[0].Name; bytes.ContainsRune(first.BeforeExtra, '\n') && e.indentAt(first.StartOffset) != "" {
			e.unit = e.indentAt(first.StartOffset)
		}
	}
	return e
}

// indentAt returns the white space at the beginning of the line that contains offset.
func (e *jsonEditor) indentAt(offset int) string {
	line := e.text[bytes.LastIndexByte(e.text[:offset], '\n')+1 : offset]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// isOneLine reports whether an object with members is on one line.
func (e *jsonEditor) isOneLine(object hujson.Value) bool {
	inner, ok := object.Value.(*hujson.Object)
	return ok && len(inner.Members) > 0 && !bytes.ContainsRune(e.text[object.StartOffset:object.EndOffset], '\n')
}

// marshal returns a value as JSON, on one line or on lines with this indentation.
func (e *jsonEditor) marshal(value any, indent string, isOneLine bool) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if !isOneLine {
		encoder.SetIndent(indent, e.unit)
	}
	_ = encoder.Encode(value) // texts, which have a form in JSON
	return string(bytes.ReplaceAll(bytes.TrimSpace(text.Bytes()), []byte("\n"), []byte(e.newline)))
}

// replace returns the text with the bytes from start to end replaced.
func (e *jsonEditor) replace(start, end int, by string) []byte {
	return slices.Concat(e.text[:start], []byte(by), e.text[end:])
}

// insert returns the text with a new last member in an object. Comments stay in their places. If
// the old last member has a trailing comma, the new one gets a trailing comma, too.
func (e *jsonEditor) insert(object hujson.Value, name string, value any) []byte {
	end := object.EndOffset - 1 // the closing brace
	start := len(bytes.TrimRight(e.text[:end], " \t\r\n"))
	key := e.marshal(name, "", true) + ": "
	members := object.Value.(*hujson.Object).Members //nolint:forcetypeassert // the caller has asked
	if len(members) == 0 {
		outer := e.indentAt(object.StartOffset)
		inner := outer + e.unit
		return e.replace(start, end, e.newline+inner+key+e.marshal(value, inner, false)+e.newline+outer)
	}
	last := members[len(members)-1]
	comma, after := ",", ""
	if last.Value.AfterExtra != nil { // it has a comma
		comma, after = "", ","
	}
	if e.isOneLine(object) {
		return e.replace(start, start, comma+" "+key+e.marshal(value, "", true)+after)
	}
	outer := e.indentAt(object.StartOffset)
	inner := outer + e.unit
	if bytes.ContainsRune(last.Name.BeforeExtra, '\n') {
		inner = e.indentAt(last.Name.StartOffset)
	}
	member := e.newline + inner + key + e.marshal(value, inner, false) + after
	if !bytes.ContainsRune(e.text[start:end], '\n') {
		member += e.newline + outer
	}
	at := last.Value.EndOffset
	return slices.Concat(e.text[:at], []byte(comma), e.text[at:start], []byte(member), e.text[start:])
}
