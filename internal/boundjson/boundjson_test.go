package boundjson

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestUnmarshal(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text          string
		values, depth int
		ok            bool
	}{
		{`1`, 1, 9, true},
		{`[1,2]`, 3, 9, true},
		{`[1,2,3]`, 3, 9, false},
		{`{"a":1,"b":[1,2]}`, 5, 9, true},
		{`{"a":1,"b":[1,2,3]}`, 5, 9, false},
		{`{"a":1,"b":[1,2,3]}`, 3, 1, true},
		{`[[1,2],[3,4],[5]]`, 4, 1, true},
		{`[[1,2],[3,4],[5]]`, 3, 1, false},
		{`[[1,2],[3,4],[5]]`, 9, 2, true},
		{`[[1,2],[3,4],[5]]`, 8, 2, false},
		{`1`, 1, 0, true},
		{`1`, 0, 0, false},
		{``, 0, 0, false},
		{`[1,2]`, 1, 0, true},
		{`["[,,,{\"[,,,\\",2]`, 3, 9, true},
		{`["\\\\","\\\"",3]`, 4, 9, true},
		{`["\\\\","\\\"",3]`, 3, 9, false},
	} {
		var to any
		err := Unmarshal([]byte(test.text), &to, test.values, test.depth)
		tooMany, refused := errors.AsType[*TooManyError](err)
		if refused == test.ok {
			t.Errorf("%s with %d values down to %d: got %v, %v, want a refusal: %v", test.text, test.values, test.depth, to, err, !test.ok)
		}
		if !refused && err != nil {
			t.Errorf("%s with %d values down to %d: got %v, want a *TooManyError or none", test.text, test.values, test.depth, err)
		}
		if refused && (tooMany.Max != test.values || to != nil) {
			t.Errorf("%s: got %v, and %v is filled in, want the bound %d and nothing", test.text, err, to, test.values)
		}
	}
	if err := Unmarshal([]byte(`["`), new(any), 9, 9); err == nil || errors.As(err, new(*TooManyError)) {
		t.Errorf("what is not JSON: %v", err)
	}
}

// FuzzUnmarshal checks that an accepted document has no more values than allowed, and is
// read as encoding/json reads it.
func FuzzUnmarshal(f *testing.F) {
	for _, text := range []string{`{"a":[1,"\"",{}],"b":null}`, `[[],[],[]]`, `"\\`, `,,,`, `[]]]]]]]]`, strings.Repeat("[", 100)} {
		f.Add([]byte(text), 3, 2)
	}
	f.Fuzz(func(t *testing.T, text []byte, values, depth int) {
		var got, want any
		err := Unmarshal(text, &got, values, depth)
		wantErr := json.Unmarshal(text, &want)
		if _, refused := errors.AsType[*TooManyError](err); refused {
			return
		}
		if (err == nil) != (wantErr == nil) || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %v, %v; encoding/json: %v, %v", text, got, err, want, wantErr)
		}
		if n := count(want, depth); err == nil && n > values {
			t.Fatalf("%q has %d values down to %d, %d are allowed", text, n, depth, values)
		}
	})
}

func count(value any, depth int) int {
	n := 1
	if depth <= 0 {
		return n
	}
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			n += count(v, depth-1)
		}
	case map[string]any:
		for _, v := range value {
			n += count(v, depth-1)
		}
	}
	return n
}
