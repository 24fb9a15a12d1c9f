package state

import (
	"errors"
	"fmt"
	"reflect"
)

// UnsupportedTypeError reports a Go type without a Python form.
type UnsupportedTypeError struct {
	Type reflect.Type
	// Path is the path from the value that was passed to the function to the refused value, such as
	// `["Servers"][2]["Conn"]`. Empty means that the passed value itself is refused.
	Path string
}

func (e *UnsupportedTypeError) Error() string {
	return fmt.Sprintf("state: %s: %s has no Python form", place(e.Path), e.Type)
}

// UnsupportedValueError reports a value of a supported type that Python or the envelope cannot
// represent: a string that is not UTF-8, a cycle, a list as a key.
type UnsupportedValueError struct {
	Path   string
	Reason string
}

func (e *UnsupportedValueError) Error() string {
	return fmt.Sprintf("state: %s: %s", place(e.Path), e.Reason)
}

// LimitError reports a value that exceeds a limit.
type LimitError struct {
	// Limit is the name of the field of [Bounds], such as "MaxBytes".
	Limit string
	Max   int64
	Path  string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("state: %s: more than %s allows (%d)", place(e.Path), e.Limit, e.Max)
}

// DecodeError reports a malformed document, or a value that does not fit the Go type of its
// target.
type DecodeError struct {
	Path string
	// Offset is the position in bytes where decoding stopped.
	Offset int
	// Type is the Go type of the target. Nil means that the document is malformed.
	Type   reflect.Type
	Reason string
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("state: decode %s (byte %d): %s", place(e.Path), e.Offset, e.Reason)
}

// maxPath limits the length of a path in an error, because its keys come from outside.
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

// within adds a step before the path in an error. The path is built while the error is returned, so
// that it costs nothing if there is no error.
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
	// A deep path is cut at its end, because its beginning is more useful.
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
