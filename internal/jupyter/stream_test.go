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
