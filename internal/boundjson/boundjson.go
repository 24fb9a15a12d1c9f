// Package boundjson reads JSON of strangers. Three bytes of it ("{},") can become
// a struct of hundreds, so a bound on its size is none on the memory it takes.
package boundjson

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// TooManyError is a document with more values than were allowed.
type TooManyError struct{ Max int }

func (e *TooManyError) Error() string { return fmt.Sprintf("the JSON has more than %d values", e.Max) }

// Unmarshal is [json.Unmarshal] for a document of at most a number of values, or
// else a [*TooManyError], for which nothing of it was decoded. Counted are the
// document and what is nested in it down to depth, of which 1 are the elements of
// an array or the members of an object: deeper than the type of to looks, where a
// [json.RawMessage] keeps what there is, values cost nothing.
func Unmarshal(data []byte, to any, values, depth int) error {
	if exceeds(data, values, depth) {
		return &TooManyError{values}
	}
	return json.Unmarshal(data, to)
}

// exceeds counts what begins a value: a bracket or a brace, or a comma. An empty
// container counts as if it had a value. What is not JSON is found later.
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

// endOfString returns where the quotation mark is that ends the string which
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
