package jupyter

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// FuzzParseStream checks that ParseStream and encoding/json agree on everything.
func FuzzParseStream(f *testing.F) {
	for _, content := range []string{
		`{"name":"stdout","text":"hello\n"}`,
		` { "text" : "\ud83d\ude00 \ud83d x \ude00\u0000\/\b\f\r\t\"\\" , "name" : "stderr" } `,
		`{"name":"stdout","text":"é` + "\xff\xed\xa0\x80" + `"}`,
		`{"name":"stdout","text":"a","text":"b"}`,
		`{"TEXT":"x"}`, `{"name":"stdout","text":null}`, `{"name":"stdout","text":"a","other":[1,{}]}`,
		`{}`, `{,}`, `{"text":"a",}`, `{"text":"a"}}`, `{"text":"` + "\n" + `"}`, `{"text":"\u12_4"}`, `{"text":"\u+123"}`, `{"text":"\`, `{"text":"abc`, `{"text":"a\nbc`, `{"te`, `{"text":`, `null`, ``,
		"{\"name\"\t:\r\"stdout\"\n,\"text\":\"a\"}\t\r\n ", `{"text" "a"}`, `{"text":"a"} x`, `{"text":"a"}]`, `["text":"a"}`, `{"text":"a";"name":"b"}`, `{"text":a}`,
		`{"text":"\u123"}`, `{"text":"\x0041"}`, `{"text":"\ud83d\x0041"}`, `{"text":"\ud83dude00abcd"}`, `{"text":"\ud83d"}`, `{"text":"\ud83d\u00"}`, `{"text":"\`, `{"text":"\u0041`, "{\"text\":\"\x1f\"}", "{\"text\":\"\x7f \"}", `{"text":"12345678"}`,
	} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var want StreamContent
		wantErr := json.Unmarshal(content, &want)
		name, text, err := ParseStream(content)
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%q: got %v, want what encoding/json returns: %v", content, err, wantErr)
		}
		if got := (StreamContent{Name: name, Text: string(text)}); err == nil && got != want {
			t.Errorf("%q is %+v, want %+v", content, got, want)
		}
	})
}

// TestPlainStream checks that the usual content is read without a copy of its text.
func TestPlainStream(t *testing.T) {
	t.Parallel()
	content := []byte(` {"name":"stdout","text":"12345678 and more"}`)
	name, text, ok := parsePlainStream(content)
	if !ok || name != "stdout" || string(text) != "12345678 and more" || cap(text) != len(text) {
		t.Fatalf("got %q, %q and %v", name, text, ok)
	}
	content[bytes.Index(content, text)]++
	if text[0] != '2' {
		t.Errorf("got a copy %q, want the content's memory", text)
	}
}

// TestPlainContents checks the contents that are read in one pass. The others are for encoding/json.
func TestPlainContents(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]bool{
		`{"name":"stdout","text":"a"}`:                              true,
		"\t{\r\"name\"\n: \"stdout\"\t,\r\"text\"\n: \"a\"\t}\r\n ": true,
		`{"text":"a","name":"stdout"}`:                              true,
		`{"name":"stdout","text":"\ud83d\ude00\/\u00e9é\b"}`:        true,
		`{"name":"stdout","text":"\ud83d"}`:                         true,
		`{"name":"stdout"}`:                                         false,
		`{"name":"stdout","text":"a","name":"b"}`:                   false,
		`{"name":"stdout","text":"a"`:                               false,
		`{"name":"stdout","text":"a"} x`:                            false,
		`{"name":"stdout","other":"a"}`:                             false,
		`{"name":"stdout";"text":"a"}`:                              false,
		`{"name" "stdout","text":"a"}`:                              false,
		`{"name":"stdout","text":1}`:                                false,
		`{"name":"stdout",text:"a"}`:                                false,
		`["name":"stdout","text":"a"}`:                              false,
		"{\"name\":\"stdout\",\"text\":\"\x1f\"}":                   false,
		"{\"name\":\"stdout\",\"text\":\"\x0b\"}\v":                 false,
	} {
		if name, text, got := parsePlainStream([]byte(content)); got != want {
			t.Errorf("%q: got %q, %q and %v, want %v", content, name, text, got, want)
		}
	}
	const escaped = `{"name":"stdout","text":`
	const value = `\n\u00e9 and more"}`
	if _, text, ok := parsePlainStream([]byte(escaped + `"` + value)); !ok || cap(text) != len(value) {
		t.Errorf("the memory of a text with escapes is of %d bytes, want %d", cap(text), len(value))
	}
}

// TestUnescape checks the value of each escape, and that the bytes after it are left.
func TestUnescape(t *testing.T) {
	t.Parallel()
	for escape, want := range map[string]string{
		`\"`: `"`, `\\`: `\`, `\/`: `/`, `\b`: "\b", `\f`: "\f", `\n`: "\n", `\r`: "\r", `\t`: "\t",
		`\u0041`: "A", `\u00e9`: "é", `\u20AC`: "€", `\ud83d\ude00`: "😀", `\ud83d`: "\ufffd", `\ude00`: "\ufffd",
	} {
		for _, rest := range []string{"", "x", `\\`, `\u0042`, `\ud83d`, `"`} {
			value, left, ok := unescape([]byte("before "), []byte(escape+rest))
			if !ok || string(value) != "before "+want || string(left) != rest {
				t.Errorf("%s before %q: got %q, %q and %v, want %q", escape, rest, value, left, ok, "before "+want)
			}
		}
	}
	for _, bad := range []string{``, `\`, `\x`, `\u`, `\u004`, `\u004g`, `\u+041`, `\U0041`, `\'`} {
		if value, left, ok := unescape(nil, []byte(bad)); ok {
			t.Errorf("%q: got %q and %q, want no escape", bad, value, left)
		}
	}
}

// TestPlainPrefix checks that every byte is noticed at every position.
func TestPlainPrefix(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		for at := range 20 {
			data := []byte(strings.Repeat("x", 20))
			data[at] = byte(c)
			want := at
			if plain[c] {
				want = len(data)
			}
			if got := plainPrefix(data); got != want {
				t.Errorf("%q: %d, want %d", data, got, want)
			}
		}
	}
}

func BenchmarkParseStream(b *testing.B) {
	for name, text := range map[string]string{
		"plain":                  strings.Repeat("x", 1<<16),
		"lines":                  strings.Repeat(strings.Repeat("x", 63)+"\n", 1<<10),
		"ascii of other letters": strings.Repeat("\u00e9", 1<<15),
	} {
		content, err := json.Marshal(StreamContent{Name: "stdout", Text: text})
		must.Do(b, err)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			for b.Loop() {
				if _, _, err := ParseStream(content); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
