package agent

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

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
