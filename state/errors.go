package state

import (
	"errors"
	"fmt"
	"reflect"
)

// UnsupportedTypeError reports a Go type that has no Python form.
type UnsupportedTypeError struct {
	Type reflect.Type
	// Path leads from the value passed in to the refused one, as in
	// `["Servers"][2]["Conn"]`. An empty path means the value itself.
	Path string
}

func (e *UnsupportedTypeError) Error() string {
	return fmt.Sprintf("state: %s: %s has no Python form", place(e.Path), e.Type)
}

// UnsupportedValueError reports a value of an allowed type that Python or the
// envelope cannot hold: a string that is not UTF-8, a cycle, a list as a key.
type UnsupportedValueError struct {
	Path   string
	Reason string
}

func (e *UnsupportedValueError) Error() string {
	return fmt.Sprintf("state: %s: %s", place(e.Path), e.Reason)
}

// LimitError reports a value that is over a limit.
type LimitError struct {
	// Limit is the name of the field of [Bounds], such as "MaxBytes".
	Limit string
	Max   int64
	Path  string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("state: %s: more than %s allows (%d)", place(e.Path), e.Limit, e.Max)
}

// DecodeError reports a malformed document, or a value that does not fit the Go
// type that it was decoded into.
type DecodeError struct {
	Path string
	// Offset is the position in bytes where decoding stopped.
	Offset int
	// Type is the Go type that did not fit. Nil means that the document is
	// malformed.
	Type   reflect.Type
	Reason string
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("state: decode %s (byte %d): %s", place(e.Path), e.Offset, e.Reason)
}

// maxPath bounds the length of a path in an error, because its keys come from
// outside.
const maxPath = 256

func place(path string) string {
	if path == "" {
		return "value"
	}
	if len(path) > maxPath {
		return fmt.Sprintf("%q…", path[:maxPath])
	}
	return path
}

// within puts a step in front of the path that an error carries. Paths are
// built while the error is returned, so that success costs nothing.
func within(err error, step string) error {
	var path *string
	if e, ok := errors.AsType[*UnsupportedTypeError](err); ok {
		path = &e.Path
	} else if e, ok := errors.AsType[*UnsupportedValueError](err); ok {
		path = &e.Path
	} else if e, ok := errors.AsType[*LimitError](err); ok {
		path = &e.Path
	} else if e, ok := errors.AsType[*DecodeError](err); ok {
		path = &e.Path
	} else {
		return fmt.Errorf("%s: %w", step, err)
	}
	// A deep path is cut at its far end: readers look for its start.
	*path = step + *path
	if len(*path) > 2*maxPath {
		*path = (*path)[:2*maxPath]
	}
	return err
}

func index(i int) string { return fmt.Sprintf("[%d]", i) }

// keyStep returns the step of a path through a dict, from its encoded key.
func keyStep(encoded []byte) string {
	if len(encoded) > 64 {
		return fmt.Sprintf("[%s…]", encoded[:64])
	}
	return fmt.Sprintf("[%s]", encoded)
}
