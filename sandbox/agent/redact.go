package agent

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/state"
)

const (
	// redacted replaces a secret.
	redacted = "[redacted]"
	// minSecret is the minimum length of a secret. Shorter values occur in every text.
	minSecret = 4
	// maxSecrets limits the bytes of all secrets together.
	maxSecrets = 64 << 10
	// minBeginning is the minimum length at which the beginning of a secret is also replaced. This
	// applies only to texts that may have been cut. Shorter beginnings occur in every text.
	minBeginning = 8
	// shortPiece is the number of bytes that short reads at a time.
	shortPiece = 4 << 10
)

// redactor replaces secrets with [redacted]. It is an automaton that reads each byte once and
// searches for all patterns at the same time (Aho and Corasick). A nil redactor changes
// nothing.
type redactor struct {
	root  [256]int32 // the node for each first byte of a pattern; 0 if no pattern begins with the byte
	next  []map[byte]int32
	fail  []int32
	depth []int32 // the node represents the first depth bytes of a pattern
	match []int32 // length of the longest pattern that ends at the node
}

// newRedactor returns a redactor that searches for all forms of secrets.
func newRedactor(secrets []string) (*redactor, error) {
	if len(secrets) == 0 {
		return nil, nil
	}
	r := &redactor{next: []map[byte]int32{{}}, fail: []int32{0}, depth: []int32{0}, match: []int32{0}}
	total := 0
	for i, secret := range secrets {
		if len(secret) < minSecret {
			return nil, fmt.Errorf("the value %d of Params.Redact is shorter than %d bytes: it would be found everywhere", i, minSecret)
		}
		if total += len(secret); total > maxSecrets {
			return nil, fmt.Errorf("the values of Params.Redact have more than %d bytes", maxSecrets)
		}
		for _, form := range formsOf(secret) {
			if len(form) >= minSecret {
				r.add(form)
			}
		}
	}
	r.link()
	return r, nil
}

// formsOf returns the forms in which a secret may occur: unchanged, in JSON, quoted by Go, as
// Python's repr, in URLs and in base64. The form in base64 depends on the offset of the secret in
// the encoded data, modulo 3, so formsOf returns forms for all three offsets.
func formsOf(secret string) []string {
	forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret), escapeAll(secret)}
	for _, quoted := range []string{strconv.Quote(secret), strconv.QuoteToASCII(secret)} {
		forms = append(forms, quoted[1:len(quoted)-1])
	}
	for _, escapeHTML := range []bool{false, true} {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(escapeHTML)
		if encoder.Encode(secret) == nil {
			forms = append(forms, text.String()[1:text.Len()-2]) // without quotes and newline
		}
	}
	for _, form := range forms[1:4] {
		forms = append(forms, lowerEscapes(form))
	}
	forms = append(forms, pythonForms(secret)...)
	forms = append(forms, jsonForm(secret, func(r rune) bool { return r < ' ' }), jsonForm(secret, func(r rune) bool { return r < ' ' || r > '~' }))
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for offset := range 3 {
			// Use only the characters that do not depend on the bytes before or after.
			text := encoding.EncodeToString([]byte(strings.Repeat("\x00", offset) + secret))
			first, last := (offset*8+5)/6, (offset+len(secret))*8/6
			forms = append(forms, text[first:last])
		}
	}
	return forms
}

// escapeAll escapes everything but letters, digits, "-", "_", "." and "~", like
// encodeURIComponent and Python's quote in their strictest form.
func escapeAll(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}

// pythonForms returns a secret in Python's forms: as the repr of a str and of bytes, with quotes
// escaped or not, and in ASCII JSON.
func pythonForms(secret string) []string {
	escape := func(r, quote rune, plain bool) string {
		named := strings.IndexRune("\n\r\t", r)
		switch {
		case r == '\\' || r == quote:
			return `\` + string(r)
		case named >= 0:
			return `\` + "nrt"[named:named+1]
		case plain:
			return string(r)
		case r < 0x100:
			return fmt.Sprintf(`\x%02x`, r)
		case r < 0x10000:
			return fmt.Sprintf(`\u%04x`, r)
		}
		return fmt.Sprintf(`\U%08x`, r)
	}
	ascii := func(r rune) bool { return ' ' <= r && r <= '~' }
	var forms []string
	for _, quote := range []rune{-1, '\''} {
		var text, raw strings.Builder
		for _, r := range secret {
			text.WriteString(escape(r, quote, unicode.IsPrint(r)))
		}
		for _, b := range []byte(secret) {
			raw.WriteString(escape(rune(b), quote, ascii(rune(b))))
		}
		forms = append(forms, text.String(), raw.String())
	}
	return forms
}

// jsonForm returns a secret as Python and JavaScript write it in JSON. It writes a character as a
// \u escape if numbered returns true for the character.
func jsonForm(secret string, numbered func(rune) bool) string {
	var text strings.Builder
	for _, r := range secret {
		named := strings.IndexRune("\"\\\b\f\n\r\t", r)
		switch {
		case named >= 0:
			text.WriteString(`\` + `"\bfnrt`[named:named+1])
		case numbered(r):
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&text, `\u%04x`, unit)
			}
		default:
			text.WriteRune(r)
		}
	}
	return text.String()
}

func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(string(b[i+1:i+3])))
			i += 2
		}
	}
	return string(b)
}

func (r *redactor) add(pattern string) {
	at := int32(0)
	for _, c := range []byte(pattern) {
		to, ok := r.next[at][c]
		if !ok {
			to = int32(len(r.next))
			r.next = append(r.next, map[byte]int32{})
			r.fail = append(r.fail, 0)
			r.depth = append(r.depth, r.depth[at]+1)
			r.match = append(r.match, 0)
			r.next[at][c] = to
		}
		at = to
	}
	r.match[at] = r.depth[at]
	r.root[pattern[0]] = r.next[0][pattern[0]]
}

func (r *redactor) link() {
	for queue := []int32{0}; len(queue) > 0; {
		at := queue[0]
		queue = queue[1:]
		for c, to := range r.next[at] {
			if at != 0 {
				r.fail[to] = r.step(r.fail[at], c)
			}
			r.match[to] = max(r.match[to], r.match[r.fail[to]])
			queue = append(queue, to)
		}
	}
}

func (r *redactor) step(at int32, c byte) int32 {
	for at != 0 {
		if to, ok := r.next[at][c]; ok {
			return to
		}
		at = r.fail[at]
	}
	return r.root[c]
}

// plain returns the number of bytes in text before the first byte with which a pattern begins.
func (r *redactor) plain(text []byte) int {
	for i, c := range text {
		if r.root[c] != 0 {
			return i
		}
	}
	return len(text)
}

// redaction redacts one stream. It releases text as soon as possible: it keeps only text that may
// be the beginning of a secret.
type redaction struct {
	r      *redactor
	at     int32
	held   []byte
	found  []int32 // for each byte of held: the length of the secret that ends with this byte, or 0
	inside bool    // the last byte released belonged to a secret
	cut    bool    // the text may have been cut, so the beginning of a secret counts as a secret
}

// write adds text to the stream and returns the bytes that can be released.
func (s *redaction) write(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if s.at == 0 { // nothing is held back
			n := s.r.plain(text[i:])
			out = append(out, text[i:i+n]...)
			s.inside = s.inside && n == 0
			if i += n; i == len(text) {
				break
			}
		}
		c := text[i]
		s.at = s.r.step(s.at, c)
		secret := s.r.match[s.at]
		if depth := s.r.depth[s.at]; s.cut && depth >= minBeginning {
			secret = depth // no less than the length of a match
		}
		s.held, s.found = append(s.held, c), append(s.found, secret)
		if s.at == 0 || len(s.held) > 2*int(s.r.depth[s.at])+4096 {
			out = s.release(out, len(s.held)-int(s.r.depth[s.at]))
		}
	}
	return s.release(out, len(s.held)-int(s.r.depth[s.at]))
}

// flush returns the held bytes at the end of the stream.
func (s *redaction) flush() []byte {
	s.at = 0
	return s.release(nil, len(s.held))
}

// release returns the first n held bytes, with secrets replaced. The cost for each byte is bounded,
// because write releases at least half of the held bytes. At the end of its text, write releases
// all bytes that can be released.
func (s *redaction) release(out []byte, n int) []byte {
	if n == 0 {
		return out
	}
	// Secrets may overlap. Going from the end, first is the earliest beginning of the secrets
	// that end at i or later.
	first := len(s.held)
	for i := len(s.held) - 1; i >= 0; i-- {
		first = min(first, i+1-int(s.found[i]))
		s.found[i] = int32(max(0, i+1-first))
	}
	for i, c := range s.held[:n] {
		hidden := s.found[i] > 0
		if !hidden {
			out = append(out, c)
		} else if !s.inside {
			out = append(out, redacted...)
		}
		s.inside = hidden
	}
	s.held = append(s.held[:0], s.held[n:]...)
	s.found = append(s.found[:0], s.found[n:]...)
	return out
}

func (r *redactor) bytes(text []byte) []byte { return r.whole(text, false) }

// whole redacts a complete text. The parameter cut means that the text may have been cut before.
func (r *redactor) whole(text []byte, cut bool) []byte {
	if r == nil {
		return text
	}
	s := redaction{r: r, cut: cut}
	return append(s.write(text), s.flush()...)
}

func (r *redactor) text(text string) string {
	if r == nil {
		return text
	}
	return string(r.bytes([]byte(text)))
}

// short redacts a text and then shortens it to limit bytes. The order matters, because the rest of
// a cut secret cannot be recognized reliably. Other code, such as a kernel or a %.64q in a format,
// may already have cut the text. Therefore short also replaces the beginning of a secret. It reads
// only the part of a long text that it needs.
func (r *redactor) short(text string, limit int) string {
	if r == nil {
		return clip.Text(text, limit)
	}
	s := redaction{r: r, cut: true}
	var out []byte
	for text != "" && len(out) <= limit {
		n := min(len(text), shortPiece)
		out = append(out, s.write([]byte(text[:n]))...)
		text = text[n:]
	}
	if text == "" {
		out = append(out, s.flush()...)
	}
	return clip.Text(string(out), limit)
}

// value redacts the document of a value. If the result is not a valid document, because the
// secret was in a number or in packed data, the whole value is replaced.
func (r *redactor) value(v state.Value) state.Value {
	if r == nil {
		return v
	}
	clean := r.whole(v.Bytes(), v.Opaque()) // the kernel sends only a part of a value without a Go form
	if string(clean) == string(v.Bytes()) {
		return v
	}
	parsed, err := state.Parse(clean, state.Bounds{})
	if err == nil {
		var natural any
		err = parsed.Decode(&natural)
	}
	if err != nil {
		if parsed, err = state.NewValue(redacted); err != nil {
			panic(err) // a constant string
		}
	}
	return parsed
}

// err redacts the text of an error. It assumes that parts of the text may have been cut. errors.Is
// and errors.As still work on the result.
func (r *redactor) err(err error) error {
	if r == nil || err == nil {
		return err
	}
	text := err.Error()
	if clean := string(r.whole([]byte(text), true)); clean != text {
		return &redactedError{clean, err}
	}
	return err
}

type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

// redactedOutput redacts the messages of one execution before any other code receives them.
type redactedOutput struct {
	r       *redactor
	streams map[string]*redaction
	message func(*jupyter.Message) error
}

// output returns two functions. The function redacting redacts a message and passes it to the
// function message. For each stream, redacting keeps a possible beginning of a secret until more
// text arrives. The function flush passes on the kept text. It must be called at the end.
func (r *redactor) output(message func(*jupyter.Message) error) (redacting func(*jupyter.Message) error, flush func() error) {
	if r == nil {
		return message, func() error { return nil }
	}
	o := &redactedOutput{r, map[string]*redaction{"stdout": {r: r}, "stderr": {r: r}}, message}
	return o.handle, o.flush
}

func (o *redactedOutput) handle(m *jupyter.Message) error {
	if m.Header.MsgType != "stream" {
		text, err := o.r.json(m.Content)
		if err != nil {
			return m.Malformed(err)
		}
		clean := *m
		clean.Content = text
		return o.message(&clean)
	}
	name, text, err := jupyter.ParseStream(m.Content)
	if err != nil {
		return m.Malformed(err)
	}
	s := o.streams[name]
	if s == nil {
		return nil // there are only these two streams
	}
	return o.forwardText(name, s.write(text), m.Header)
}

// json redacts a JSON document. It redacts the decoded strings, so their escapes do not matter.
func (r *redactor) json(text []byte) ([]byte, error) {
	if r == nil {
		return text, nil
	}
	var content any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&content); err != nil {
		return nil, err
	}
	return json.Marshal(r.tree(content))
}

// tree redacts the strings in a value decoded by encoding/json.
func (r *redactor) tree(v any) any {
	switch v := v.(type) {
	case string:
		return r.text(v)
	case json.Number:
		if clean := r.text(v.String()); clean != v.String() {
			return clean
		}
	case []any:
		for i := range v {
			v[i] = r.tree(v[i])
		}
	case map[string]any:
		for _, key := range slices.Collect(maps.Keys(v)) { // the map changes in the loop
			value := v[key]
			delete(v, key)
			v[r.text(key)] = r.tree(value)
		}
	}
	return v
}

func (o *redactedOutput) forwardText(name string, text []byte, header jupyter.Header) error {
	if len(text) == 0 {
		return nil
	}
	content, err := json.Marshal(jupyter.StreamContent{Name: name, Text: string(text)})
	if err != nil {
		return err
	}
	return o.message(&jupyter.Message{Channel: jupyter.IOPub, Header: header, Content: content})
}

func (o *redactedOutput) flush() error {
	var failed []error
	for _, name := range []string{"stdout", "stderr"} {
		failed = append(failed, o.forwardText(name, o.streams[name].flush(), jupyter.Header{MsgType: "stream"}))
	}
	return errors.Join(failed...)
}
