// Package boundjson reads JSON that comes from untrusted sources. Three bytes of it
// ("{},") can become a struct of hundreds, so limiting its size does not limit the
// memory that it takes.
package boundjson

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// TooManyError reports a document with more values than were allowed.
type TooManyError struct{ Max int }

func (e *TooManyError) Error() string { return fmt.Sprintf("the JSON has more than %d values", e.Max) }

// Unmarshal works like [json.Unmarshal] for a document of at most the given number of values. If there are more,
// it decodes nothing and returns a [*TooManyError]. It counts the document and the values nested in it down to
// depth, where depth 1 means the elements of an array or the members of an object. Values nested deeper than the
// type of to, where a [json.RawMessage] keeps the text, cost nothing.
func Unmarshal(data []byte, to any, values, depth int) error {
	if exceeds(data, values, depth) {
		return &TooManyError{values}
	}
	return json.Unmarshal(data, to)
}

// exceeds counts the characters that begin a value: brackets, braces and commas. An empty container counts as if
// it had a value. Invalid JSON is found later.
func exceeds(data []byte, values, depth int) bool {
	n, level := 1, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = endOfString(data, i)
		case '[', '{':
			if level++; level <= depth {
				n++
			}
		case ']', '}':
			level--
		case ',':
			if level <= depth {
				n++
			}
		}
		if n > values {
			return true
		}
	}
	return n > values
}

// endOfString returns the position of the quotation mark that ends the string which
// begins at start.
func endOfString(data []byte, start int) int {
	for i := start + 1; ; i++ {
		next := bytes.IndexByte(data[i:], '"')
		if next < 0 {
			return len(data)
		}
		i += next
		escapes := 0
		for data[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i
		}
	}
}
