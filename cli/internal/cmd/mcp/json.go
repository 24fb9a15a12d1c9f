package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// jsonFormat is JSON with optional comments and trailing
// commas. The servers are the members of one object.
type jsonFormat struct {
	servers   string // the name of the object whose members are the servers
	isTyped   bool   // each server has a member "type"
	isStrict  bool   // the client reads neither comments nor trailing commas
	reference string // form of a reference to an environment variable; %s stands for its name
}

// jsonServer is a server as it is encoded in a client's JSON.
type jsonServer struct {
	Type    string            `json:"type,omitempty"`
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`
}

func (f *jsonFormat) server(s server) jsonServer {
	made := jsonServer{Command: s.Command, Args: s.Args}
	if f.isTyped {
		made.Type = "stdio"
	}
	for _, name := range s.Variables {
		if made.Env == nil {
			made.Env = map[string]string{}
		}
		made.Env[name] = fmt.Sprintf(f.reference, name)
	}
	return made
}

func (f *jsonFormat) entry(name string, s server) (string, error) {
	text, _, err := f.edit(nil, name, s)
	return string(text), err
}

func (f *jsonFormat) values(text []byte) (servers, rest map[string]any, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil, nil
	}
	root, err := f.parse(text)
	if err != nil {
		return nil, nil, err
	}
	root.Standardize()
	if err := json.Unmarshal(root.Pack(), &rest); err != nil {
		return nil, nil, err
	}
	servers, _ = rest[f.servers].(map[string]any)
	delete(rest, f.servers)
	return servers, rest, nil
}

// parse returns the syntax tree of a text, whose root is an object.
func (f *jsonFormat) parse(text []byte) (hujson.Value, error) {
	if f.isStrict {
		var any any
		if syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(text, &any)); ok {
			return hujson.Value{}, fmt.Errorf("%s: %w", position(text, int(syntax.Offset)-1), syntax)
		}
	}
	root, err := hujson.Parse(append(bytes.Clone(text), '\n')) // it wants an end of line after a comment
	if err != nil {
		message, literal, isLiteral := strings.Cut(strings.TrimPrefix(err.Error(), "hujson: "), "invalid literal: ")
		if isLiteral && literal != "" { // which may be a secret
			message += "this is no valid string, number or word"
		}
		return root, errors.New(message)
	}
	return root, wantObject(text, root, "the configuration")
}

// wantObject returns an error unless a value is an object.
func wantObject(text []byte, value hujson.Value, what string) error {
	if value.Value.Kind() == '{' {
		return nil
	}
	return fmt.Errorf("%s: %s is to be an object, {…}", position(text, value.StartOffset), what)
}

// position returns the line and the column of an offset, which count from one.
func position(text []byte, offset int) string {
	before := text[:min(max(offset, 0), len(text))]
	return fmt.Sprintf("line %d, column %d", 1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n'))
}

func (f *jsonFormat) edit(text []byte, name string, s server) (edited []byte, existed bool, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	root, err := f.parse(text)
	if err != nil {
		return nil, false, err
	}
	e, made := newJSONEditor(text, root), f.server(s)
	servers, found := memberOf(root, f.servers)
	if !found {
		return e.insert(root, f.servers, map[string]jsonServer{name: made}), false, nil
	}
	if err := wantObject(text, servers, f.servers); err != nil {
		return nil, false, err
	}
	there, found := memberOf(servers, name)
	if !found {
		return e.insert(servers, name, made), false, nil
	}
	if sameJSON(there, made) {
		return text, true, nil
	}
	return e.replace(there.StartOffset, there.EndOffset, e.marshal(made, e.indentAt(there.StartOffset), e.isOneLine(servers))), true, nil
}

// memberOf returns the member of an object with the given name. If several members have that name,
// it returns the last one, as programs that read JSON do.
func memberOf(object hujson.Value, name string) (hujson.Value, bool) {
	for _, member := range slices.Backward(object.Value.(*hujson.Object).Members) { //nolint:forcetypeassert // the caller has asked
		if literal, ok := member.Name.Value.(hujson.Literal); ok && literal.String() == name {
			return member.Value, true
		}
	}
	return hujson.Value{}, false
}

// sameJSON reports whether the value there, from a file, is equivalent to the JSON of s.
func sameJSON(there hujson.Value, s jsonServer) bool {
	there = there.Clone()
	there.Standardize()
	text, err := json.Marshal(s)
	var old, made any
	return err == nil && json.Unmarshal(there.Pack(), &old) == nil && json.Unmarshal(text, &made) == nil && reflect.DeepEqual(old, made)
}
