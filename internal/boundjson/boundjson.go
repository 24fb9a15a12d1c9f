// Package boundjson reads JSON that comes from untrusted sources. Three bytes of JSON ("{},") can
// become a struct of hundreds of bytes. A limit on the size of the JSON therefore does not limit
// the memory for the decoded values.
package boundjson

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// TooManyError reports a document with more values than were allowed.
type TooManyError struct{ Max int }

func (e *TooManyError) Error() string { return fmt.Sprintf("the JSON has more than %d values", e.Max) }

// Unmarshal works like [json.Unmarshal] for a document of at most the given number of values. If
// the document has more, Unmarshal decodes nothing and returns a [*TooManyError]. It counts the
// document and the values nested in it down to depth. Depth 1 means the elements of an array or the
// members of an object. Values nested deeper than the type of to cost nothing, because a
// [json.RawMessage] keeps their text.
func Unmarshal(data []byte, to any, values, depth int) error {
	if exceeds(data, values, depth) {
		return &TooManyError{values}
	}
	return json.Unmarshal(data, to)
}

// exceeds reports whether a document has more values than the limit. It counts the characters after
// which a value begins: opening brackets and braces, and commas. It therefore counts one value in
// an empty array or object. It does not check whether the JSON is valid, because the decoder does
// that later.
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
