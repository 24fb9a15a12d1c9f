package jupyter

import (
	"regexp"
	"strings"
	"testing"
)

func TestSplitID(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 254)
	for id, want := range map[string]struct {
		prefix string
		n      int64
		ok     bool
	}{
		"a_17":               {"a", 17, true},
		"a_b_0":              {"a_b", 0, true},
		"_1":                 {"", 1, true},
		"a":                  {},
		"a_":                 {"a", 0, false},
		"a_b":                {"a", 0, false},
		"a_-1":               {"a", -1, false},
		"a_9007199254740991": {"a", 1<<53 - 1, true}, // a JavaScript server has no larger exact number
		"a_9007199254740992": {"a", 1 << 53, false},
		long + "_1":          {long, 1, true}, // 256 bytes
		long + "_10":         {},
	} {
		prefix, n, ok := SplitID(id)
		if ok != want.ok || ok && (prefix != want.prefix || int64(n) != want.n) {
			t.Errorf("%s: got %q, %d, %v, want %+v", id, prefix, n, ok, want)
		}
	}
}

// TestNewID checks that an id is a UUID of version 4 with random digits.
func TestNewID(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for range 100 {
		if id := NewID(); !form.MatchString(id) {
			t.Fatalf("%s is not a UUID of version 4", id)
		}
	}
}

// TestContents checks contents that no kernel sends.
func TestContents(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]StatusContent{
		`{"execution_state":"dead","reason":"memory"}`: {StateDead, "memory"}, `{"execution_state":"dead","reason":1}`: {}, `{`: {}, ``: {},
	} {
		if got := (&Message{Content: []byte(content)}).Status(); got != want {
			t.Errorf("%s: got %+v, want %+v", content, got, want)
		}
	}
	for name, tt := range map[string]struct {
		content string
		ok      bool
	}{
		"the most lines":     {`{"traceback":[""` + strings.Repeat(`,""`, MaxMembers-3) + `]}`, true},
		"a line too many":    {`{"traceback":[""` + strings.Repeat(`,""`, MaxMembers-2) + `]}`, false},
		"of another type":    {`{"traceback":1}`, false},
		"cut":                {`{"traceback":[`, false},
		"an unknown content": {`{"other":[1]}`, true},
	} {
		var got ErrorContent
		err := (&Message{Header: Header{MsgType: "error"}, Content: []byte(tt.content)}).Decode(&got)
		if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "read the kernel's error") {
			t.Errorf("%s: got error %v, want one: %v", name, err, !tt.ok)
		}
	}
	date := Date("before")
	if err := date.UnmarshalJSON([]byte("1")); err != nil || date != "" {
		t.Errorf("got the date %q and error %v, want none", date, err)
	}
}

// TestEncode checks that content that cannot be encoded is a mistake in this program.
func TestEncode(t *testing.T) {
	t.Parallel()
	if got := string(Encode(InputReply{Value: "x"})); got != `{"value":"x"}` {
		t.Errorf("got %s", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("a function was encoded, want a panic")
		}
	}()
	Encode(func() {})
}
