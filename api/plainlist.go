package api

import (
	"strconv"
	"time"
)

const (
	leastText = 128 // what a sandbox has of text in a list, at least
	usualPage = 100 // the number of sandboxes on a page of most services
)

// plainSandboxes decodes a list of sandboxes in the form in which services send it: the names of the
// fields as they are documented, strings of ASCII without escapes, whole numbers of at most nine
// digits, no volumes. It returns false for everything else. Then encoding/json must decode the text,
// or refuse it with its error. encoding/json reads a text twice and allocates thirteen times for a
// sandbox, plainSandboxes once and twice.
func plainSandboxes(text []byte) ([]SandboxInfo, bool) {
	s := plainText{text: text, values: 1}
	list := make([]SandboxInfo, 0, min(len(text)/leastText, usualPage))
	var none SandboxInfo
	one, before := &none, &none
	field := func() bool {
		key, ok := s.quoted()
		return ok && s.next(':') && s.sandboxField(string(key), one, before)
	}
	ok := s.elements('[', ']', func() bool {
		list = append(list, SandboxInfo{})
		if one = &list[len(list)-1]; len(list) > 1 {
			before = &list[len(list)-2]
		}
		return s.elements('{', '}', field)
	})
	s.space()
	return list, ok && s.at == len(s.text)
}

// sandboxField decodes the value of one field. before is the previous sandbox of the list. A string
// that both have is allocated once.
func (s *plainText) sandboxField(key string, one, before *SandboxInfo) bool {
	switch key {
	case "sandboxID":
		return s.string(&one.ID, "")
	case "templateID":
		return s.string(&one.TemplateID, before.TemplateID)
	case "clientID":
		return s.string(&one.ClientID, before.ClientID)
	case "alias":
		return s.string(&one.Alias, before.Alias)
	case "envdVersion":
		return s.string(&one.EnvdVersion, before.EnvdVersion)
	case "state":
		return s.string((*string)(&one.State), string(before.State))
	case "startedAt":
		return s.time(&one.StartedAt)
	case "endAt":
		return s.time(&one.EndAt)
	case "cpuCount":
		return s.number(func(n int) { one.CPUs = n })
	case "memoryMB":
		return s.number(func(n int) { one.MemoryBytes, _ = sizes{MemoryMB: int64(n)}.bytes() })
	case "diskSizeMB":
		return s.number(func(n int) { _, one.DiskBytes = sizes{DiskSizeMB: int64(n)}.bytes() })
	case "metadata":
		return s.labels(&one.Metadata)
	case "volumeMounts":
		one.VolumeMounts = []VolumeMount{}
		return s.elements('[', ']', func() bool { return false })
	default:
		return false
	}
}

// plainText is a position in a JSON text of the form that [plainSandboxes] describes. Its methods
// return false if the text does not have this form. Then the position has no meaning.
type plainText struct {
	text []byte
	at   int
	// values is the number of values up to the position, as package boundjson counts them.
	values int
}

func (s *plainText) space() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\n' || s.text[s.at] == '\r' || s.text[s.at] == '\t') {
		s.at++
	}
}

// next consumes the character c, if it is the next one after white space.
func (s *plainText) next(c byte) bool {
	s.space()
	if s.at == len(s.text) || s.text[s.at] != c {
		return false
	}
	s.at++
	return true
}

// elements consumes an array or an object, and calls one for each of its elements or members.
func (s *plainText) elements(begin, end byte, one func() bool) bool {
	if !s.next(begin) {
		return false
	}
	s.values++
	if s.next(end) {
		return true
	}
	for s.values <= maxAnswerValues && one() {
		if s.next(end) {
			return true
		}
		if !s.next(',') {
			return false
		}
		s.values++
	}
	return false
}

// quoted consumes a string, and returns the characters between its quotation marks.
func (s *plainText) quoted() ([]byte, bool) {
	if !s.next('"') {
		return nil, false
	}
	for start := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[start : s.at-1], true
		case c == '\\' || c < ' ' || c > '~':
			return nil, false
		}
	}
	return nil, false
}

// string consumes a string. If it is the same as before, it needs no memory of its own.
func (s *plainText) string(to *string, before string) bool {
	text, ok := s.quoted()
	if *to = before; string(text) != before {
		*to = string(text)
	}
	return ok
}

func (s *plainText) time(to *time.Time) bool {
	s.space()
	start := s.at
	_, ok := s.quoted()
	return ok && to.UnmarshalJSON(s.text[start:s.at]) == nil
}

// number consumes a number. Nine digits fit into an int of any machine.
func (s *plainText) number(set func(int)) bool {
	s.space()
	start := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	digits := s.text[start:s.at]
	if len(digits) == 0 || len(digits) > 9 || digits[0] == '0' && len(digits) > 1 {
		return false
	}
	n, err := strconv.Atoi(string(digits))
	set(n)
	return err == nil
}

// labels consumes an object whose values are strings.
func (s *plainText) labels(to *map[string]string) bool {
	if *to == nil {
		*to = map[string]string{}
	}
	return s.elements('{', '}', func() bool {
		key, ok := s.quoted()
		var value string
		ok = ok && s.next(':') && s.string(&value, "")
		(*to)[string(key)] = value
		return ok
	})
}
