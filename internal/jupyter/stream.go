package jupyter

import (
	"encoding/binary"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// ParseStream reads the content of a stream message. text may refer to the memory of content.
// Nearly all messages of a busy kernel are output of code, and encoding/json would read each byte
// several times. Kernels write an object of two strings. ParseStream reads such an object in one
// pass, and uses encoding/json for any other content. The result is always the result of
// encoding/json.
func ParseStream(content []byte) (name string, text []byte, err error) {
	if name, text, ok := parsePlainStream(content); ok {
		return name, text, nil
	}
	var s StreamContent
	err = json.Unmarshal(content, &s)
	return s.Name, []byte(s.Text), err
}

func parsePlainStream(content []byte) (name string, text []byte, ok bool) {
	token := byte('{')
	for range 2 {
		var key, value []byte
		if content, ok = cutToken(content, token); !ok {
			return "", nil, false
		}
		if key, content, ok = cutString(content); !ok {
			return "", nil, false
		}
		if content, ok = cutToken(content, ':'); !ok {
			return "", nil, false
		}
		if value, content, ok = cutString(content); !ok {
			return "", nil, false
		}
		switch string(key) {
		case "name":
			name = string(value)
		case "text":
			text = value
		default:
			return "", nil, false // encoding/json accepts "TEXT" for text, too
		}
		token = ','
	}
	content, ok = cutToken(content, '}')
	return name, text, ok && len(trimSpace(content)) == 0
}

func trimSpace(data []byte) []byte {
	for len(data) > 0 && (data[0] == ' ' || data[0] == '\n' || data[0] == '\r' || data[0] == '\t') {
		data = data[1:]
	}
	return data
}

func cutToken(data []byte, token byte) (rest []byte, ok bool) {
	if data = trimSpace(data); len(data) == 0 || data[0] != token {
		return nil, false
	}
	return data[1:], true
}

// plain is true for each byte that stands for itself in a JSON string, without an escape.
var plain = func() (table [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		table[c] = c != '"' && c != '\\'
	}
	return table
}()

// cutString reads a JSON string. If the string has no escapes, value refers to the memory
// of data.
func cutString(data []byte) (value, rest []byte, ok bool) {
	if data, ok = cutToken(data, '"'); !ok {
		return nil, nil, false
	}
	end := plainPrefix(data)
	if end < len(data) && data[end] == '"' {
		return data[:end:end], data[end+1:], true
	}
	value = make([]byte, 0, len(data)) // there are at most two strings
	for {
		value = append(value, data[:end]...)
		if data = data[end:]; len(data) == 0 {
			return nil, nil, false
		}
		switch c := data[0]; {
		case c == '"':
			return value, data[1:], true
		case c == '\\':
			if value, data, ok = unescape(value, data); !ok {
				return nil, nil, false
			}
		case c < ' ':
			return nil, nil, false
		default:
			r, size := utf8.DecodeRune(data) // U+FFFD for invalid UTF-8
			value, data = utf8.AppendRune(value, r), data[size:]
		}
		end = plainPrefix(data)
	}
}

// plainPrefix returns the number of plain bytes at the beginning of data. Plain bytes are ASCII
// characters except control characters below the space, the quote and the backslash. plainPrefix
// checks eight bytes at a time, because the speed of large output depends on this function.
func plainPrefix(data []byte) int {
	n := 0
	for len(data)-n >= 8 && isPlain(binary.LittleEndian.Uint64(data[n:])) {
		n += 8
	}
	for n < len(data) && plain[data[n]] {
		n++
	}
	return n
}

// isPlain reports whether all eight bytes are plain. It subtracts a number from each byte. If a byte
// is smaller than the number, and its highest bit is not set, the subtraction sets this bit.
func isPlain(bytes uint64) bool {
	const each, high = 0x0101010101010101, 0x8080808080808080
	quote, backslash := bytes^'"'*each, bytes^'\\'*each
	return (bytes|(bytes-' '*each)|(quote-each)|(backslash-each))&high == 0
}

// unescape reads one escape. If the escape is the first half of a surrogate pair, unescape also
// reads the other half.
func unescape(value, data []byte) (_, rest []byte, ok bool) {
	if len(data) < 2 {
		return nil, nil, false
	}
	switch c := data[1]; c {
	case '"', '\\', '/':
		return append(value, c), data[2:], true
	case 'b':
		return append(value, '\b'), data[2:], true
	case 'f':
		return append(value, '\f'), data[2:], true
	case 'n':
		return append(value, '\n'), data[2:], true
	case 'r':
		return append(value, '\r'), data[2:], true
	case 't':
		return append(value, '\t'), data[2:], true
	}
	r, ok := unit(data)
	if !ok {
		return nil, nil, false
	}
	data = data[6:]
	if utf16.IsSurrogate(r) {
		low, _ := unit(data)
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			data = data[6:]
		}
	}
	return utf8.AppendRune(value, r), data, true
}

// unit reads \uXXXX.
func unit(data []byte) (rune, bool) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return utf8.RuneError, false
	}
	n, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	return rune(n), err == nil
}
