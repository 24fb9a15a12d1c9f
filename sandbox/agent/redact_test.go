package agent

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// FuzzRedaction checks that however a text is cut, the result is the same and has no secret.
func FuzzRedaction(f *testing.F) {
	f.Add("secret", "a secrsecret sec", 3)
	f.Add("aaaa", "aaaaaaab aaa", 1)
	f.Fuzz(func(t *testing.T, secret, text string, cut int) {
		r, err := newRedactor([]string{secret})
		if err != nil || r == nil {
			t.Skip("not a value that can be redacted")
		}
		whole := r.text(text)
		if cut = max(1, cut%16); strings.Contains(strings.ReplaceAll(whole, redacted, "\x00"), secret) && !strings.Contains(secret, "\x00") {
			t.Errorf("%q has %q", whole, secret)
		}
		s := redaction{r: r}
		var out []byte
		for rest := []byte(text); len(rest) > 0; {
			n := min(cut, len(rest))
			out = append(out, s.write(rest[:n])...)
			rest = rest[n:]
		}
		if got := string(append(out, s.flush()...)); got != whole {
			t.Errorf("in pieces %q, whole %q", got, whole)
		}
	})
}

// FuzzRedactedForms checks that a secret is gone in each known form, whatever text it was
// encoded with, and however the result is cut.
func FuzzRedactedForms(f *testing.F) {
	f.Add("secret", "ab", "c", 3)
	f.Add("s3cr3t-väl\"ue <&>", "", "", 1)
	f.Add("a b+c/d%20", "x", "yz", 2)
	f.Add("\x00\xff\xfe\xfd", "\x00", "\xff", 5)
	f.Fuzz(func(t *testing.T, secret, before, after string, cut int) {
		r, err := newRedactor([]string{secret})
		if err != nil || r == nil {
			t.Skip("not a value that can be redacted")
		}
		all := before + secret + after
		inJSON, err := json.Marshal(all)
		must.Do(t, err)
		alone, _ := json.Marshal(secret)
		for text, form := range map[string]string{
			all: secret, url.QueryEscape(all): url.QueryEscape(secret), url.PathEscape(all): url.PathEscape(secret),
			string(inJSON): string(alone[1 : len(alone)-1]),
		} {
			hidden(t, r, text, form, cut)
		}
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			text := encoding.EncodeToString([]byte(all))
			// These characters depend only on bits of the secret.
			first, last := (8*len(before)+5)/6, 8*(len(before)+len(secret))/6
			hidden(t, r, text, text[first:last], cut)
		}
	})
}

// hidden fails the test if a text that was redacted in pieces still contains a form.
func hidden(t *testing.T, r *redactor, text, form string, cut int) {
	t.Helper()
	s := redaction{r: r}
	var out []byte
	cut = 1 + max(cut, -cut)%16
	for rest := []byte(text); len(rest) > 0; {
		n := min(cut, len(rest))
		out = append(out, s.write(rest[:n])...)
		rest = rest[n:]
	}
	got := string(append(out, s.flush()...))
	if strings.Contains(strings.ReplaceAll(got, redacted, "\x01"), form) && !strings.Contains(form, "\x01") {
		t.Errorf("%q has %q: %q", text, form, got)
	}
}

// TestRedactedInPython checks that forms of a secret that Python makes are hidden as well,
// also in the audit's code, which is source within JSON.
func TestRedactedInPython(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		for _, secret := range []string{"line 1\nline 2", `a\b"c'd`, "t\tab\x07'x", "pässwörd", "\u00a0\U0001f600 \x7f\b\f"} {
			var rs runs
			var audit bytes.Buffer
			run := h.begin(t, &rs, Params{Audit: &audit, Redact: []string{secret}})
			inSource, err := json.Marshal(secret)
			must.Do(t, err)
			shown := mustExec(t, run, fmt.Sprintf("import json\ns = %s\nb = s.encode()\n"+
				"print([s], {s + '\\'': 1}, b, b + b'\\'', json.dumps(s), json.dumps(s, ensure_ascii=False), sep='\\n')", inSource)).Stdout
			if n := strings.Count(shown, redacted); n != 6 || strings.Count(shown, "\n") != 6 {
				t.Errorf("%q: got %s (%d marks), want 6 lines with a mark each", secret, shown, n)
			}
			must.Do(t, run.Close())
			if want := `s = \"[redacted]\"`; !strings.Contains(audit.String(), want) {
				t.Errorf("%q: got %s, want %q in it", secret, &audit, want)
			}
		}
	})
}

// TestRedactorBounds checks refused values, and the nearest allowed ones.
func TestRedactorBounds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789abcdef", maxSecrets/16)
	for name, test := range map[string]struct {
		secrets []string
		want    string // the error
	}{
		"none":           {nil, ""},
		"an empty one":   {[]string{""}, "the value 0 of Params.Redact is shorter than 4 bytes: it would be found everywhere"},
		"a short one":    {[]string{"abcd", "abc"}, "the value 1 of Params.Redact is shorter than 4 bytes: it would be found everywhere"},
		"a shortest one": {[]string{"abcd"}, ""},
		"much":           {[]string{long[:len(long)/2], long[len(long)/2:]}, ""},
		"too much":       {[]string{long[:len(long)/2], long[len(long)/2:] + "x"}, "the values of Params.Redact have more than 65536 bytes"},
	} {
		r, err := newRedactor(test.secrets)
		if got := fmt.Sprint(err); got != test.want && (err != nil || test.want != "") {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
		for _, secret := range test.secrets {
			if got := r.text("<" + secret + ">"); err == nil && got != "<"+redacted+">" {
				t.Errorf("%s: got %.100q, want it redacted", name, got)
			}
		}
	}
}

func BenchmarkRedaction(b *testing.B) {
	r, err := newRedactor([]string{"sk-0123456789abcdefghijklmnop", "another secret"})
	must.Do(b, err)
	text := []byte(strings.Repeat("The quick brown fox jumps over the lazy dog, 0123456789 times.\n", 1<<14))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if len(r.bytes(text)) != len(text) {
			b.Fatal("something was hidden")
		}
	}
}

// Secrets beside each other are one, and secrets with text between them are several.
func TestEachSecretIsReplaced(t *testing.T) {
	t.Parallel()
	const secret = "hunter22"
	r, err := newRedactor([]string{secret})
	must.Do(t, err)
	for text, want := range map[string]string{
		secret: redacted, secret + secret: redacted,
		secret + " " + secret:                 redacted + " " + redacted,
		"a" + secret + "b" + secret + "c":     "a" + redacted + "b" + redacted + "c",
		secret + "hunter" + secret + "hunter": redacted + "hunter" + redacted + "hunter",
	} {
		if got := r.text(text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestFormsOfASecret compares all forms in which a secret is searched, for a secret with each kind of character.
func TestFormsOfASecret(t *testing.T) {
	t.Parallel()
	const secret = "a b/+&'\"\\\n\t\x1f ~\x7f\u00e9\u00ad\u2028\U0001F600"
	const escaped = `%E2%80%A8`
	want := []string{
		secret,
		// in URLs
		"a+b%2F%2B%26%27%22%5C%0A%09%1F+~%7F%C3%A9%C2%AD" + escaped + "%F0%9F%98%80",
		"a%20b%2F+&%27%22%5C%0A%09%1F%20~%7F%C3%A9%C2%AD" + escaped + "%F0%9F%98%80",
		"a%20b%2F%2B%26%27%22%5C%0A%09%1F%20~%7F%C3%A9%C2%AD" + escaped + "%F0%9F%98%80",
		// quoted by Go
		`a b/+&'\"\\\n\t\x1f ~\x7f` + "é" + `\u00ad\u2028` + "\U0001F600",
		`a b/+&'\"\\\n\t\x1f ~\x7f\u00e9\u00ad\u2028\U0001f600`,
		// in JSON, by Go
		`a b/+&'\"\\\n\t\u001f ~` + "\x7fé\u00ad" + `\u2028` + "\U0001F600",
		`a b/+\u0026'\"\\\n\t\u001f ~` + "\x7fé\u00ad" + `\u2028` + "\U0001F600",
		// in URLs, with small letters
		"a+b%2f%2b%26%27%22%5c%0a%09%1f+~%7f%c3%a9%c2%ad%e2%80%a8%f0%9f%98%80",
		"a%20b%2f+&%27%22%5c%0a%09%1f%20~%7f%c3%a9%c2%ad%e2%80%a8%f0%9f%98%80",
		"a%20b%2f%2b%26%27%22%5c%0a%09%1f%20~%7f%c3%a9%c2%ad%e2%80%a8%f0%9f%98%80",
		// as Python's repr of a str and of bytes, in quotation marks and in apostrophes
		`a b/+&'"\\\n\t\x1f ~\x7f` + "é" + `\xad\u2028` + "\U0001F600",
		`a b/+&'"\\\n\t\x1f ~\x7f\xc3\xa9\xc2\xad\xe2\x80\xa8\xf0\x9f\x98\x80`,
		`a b/+&\'"\\\n\t\x1f ~\x7f` + "é" + `\xad\u2028` + "\U0001F600",
		`a b/+&\'"\\\n\t\x1f ~\x7f\xc3\xa9\xc2\xad\xe2\x80\xa8\xf0\x9f\x98\x80`,
		// in JSON, by others
		`a b/+&'\"\\\n\t\u001f ~` + "\x7fé\u00ad\u2028\U0001F600",
		`a b/+&'\"\\\n\t\u001f ~\u007f\u00e9\u00ad\u2028\ud83d\ude00`,
	}
	got := formsOf(secret)
	if diff := cmp.Diff(want, got[:min(len(want), len(got))]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The rest is base64, in two alphabets and at three offsets. The first and the last characters depend on other bytes.
	rest := formsOf("~~~~~")[len(want):]
	if diff := cmp.Diff([]string{"fn5+fn", "5+fn5+", "+fn5+f", "fn5-fn", "5-fn5-", "-fn5-f"}, rest); diff != "" {
		t.Errorf("in base64 (-want +got):\n%s", diff)
	}
	if got := formsOf("\U00010000\uffff\u0378")[11:13]; got[0] != "\U00010000"+`\uffff\u0378` {
		t.Errorf("got %q", got)
	}
	if got := pythonForms("\U000e0001")[0]; got != `\U000e0001` {
		t.Errorf("got %s, want all eight digits", got)
	}
}

// TestSecretsWithinOthers checks secrets that begin, end or contain each other, also if only the inner one is there.
func TestSecretsWithinOthers(t *testing.T) {
	t.Parallel()
	r, err := newRedactor([]string{"0abcd1", "abcd", "bcd1234", "zabcdabcz"})
	must.Do(t, err)
	for text, want := range map[string]string{
		"0abcd2": "0" + redacted + "2", "0abcd1": redacted, "0abcd1234": redacted, "0abcd12": redacted + "2", "xbcd123": "xbcd123",
		"0abc0abcd": "0abc0" + redacted, "zabcdabc.": "z" + redacted + "abc.", "zabcdabcd": "z" + redacted, "0abc": "0abc",
	} {
		if got := r.text(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// TestBeginningsOfSecrets checks the shortest beginning of a secret that is replaced in text that may have been cut, and
// that none is replaced in other text.
func TestBeginningsOfSecrets(t *testing.T) {
	t.Parallel()
	r, err := newRedactor([]string{"0123456789abcdef"})
	must.Do(t, err)
	for text, want := range map[string]string{
		"a 0123456": "a 0123456", "a 01234567": "a " + redacted, "a 01234567 b": "a " + redacted + " b", "a 0123456 b": "a 0123456 b", "0123456701234567": redacted,
	} {
		if got := r.short(text, 100); got != want {
			t.Errorf("%q may be cut: got %q, want %q", text, got, want)
		}
		if got := r.err(errors.New(text)).Error(); got != want {
			t.Errorf("%q in an error: got %q, want %q", text, got, want)
		}
		if got := r.text(text); got != text {
			t.Errorf("%q is whole: got %q, want it unchanged", text, got)
		}
	}
	if err := r.err(nil); err != nil {
		t.Errorf("got %v of no error", err)
	}
}

// TestRedactedMessages checks the messages that leave for a step: each part of a stream under its name, nothing of another
// stream, and the numbers of displayed data as they were.
func TestRedactedMessages(t *testing.T) {
	t.Parallel()
	r, err := newRedactor([]string{"s3cr3t"})
	must.Do(t, err)
	var got []string
	failed := errors.New("no room")
	handle, flush := r.output(func(m *jupyter.Message) error {
		got = append(got, m.Header.MsgType+" "+m.Header.MsgID+" "+string(m.Content))
		if strings.Contains(string(m.Content), "fail") {
			return failed
		}
		return nil
	})
	for _, message := range [][2]string{
		{"stream", `{"name":"stdout","text":"a s3"}`}, {"stream", `{"name":"stderr","text":"b s3"}`}, {"stream", `{"name":"other","text":"c"}`},
		{"stream", `{"name":"stdout","text":"cr3t"}`}, {"stream", `{"name":"stdout","text":"s"}`},
		{"display_data", `{"data":{"n":9007199254740993,"f":1.50,"s3cr3t":["s3cr3t",true]}}`},
	} {
		must.Do(t, handle(&jupyter.Message{Header: jupyter.Header{MsgType: message[0], MsgID: "1"}, Content: []byte(message[1])}))
	}
	must.Do(t, flush())
	if diff := cmp.Diff([]string{
		`stream 1 {"name":"stdout","text":"a "}`, `stream 1 {"name":"stderr","text":"b "}`, `stream 1 {"name":"stdout","text":"[redacted]"}`,
		`display_data 1 {"data":{"[redacted]":["[redacted]",true],"f":1.50,"n":9007199254740993}}`,
		`stream  {"name":"stdout","text":"s"}`, `stream  {"name":"stderr","text":"s3"}`,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := handle(&jupyter.Message{Header: jupyter.Header{MsgType: "stream"}, Content: []byte(`{"name":"stdout","text":"fail"}`)}); !errors.Is(err, failed) {
		t.Errorf("got error %v, want %v", err, failed)
	}
}
