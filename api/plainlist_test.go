package api

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// listedSandbox is a sandbox as services list it.
const listedSandbox = `{"templateID":"base","sandboxID":"i1","clientID":"c","alias":"base","startedAt":"2026-11-02T10:00:00.123456Z",` +
	`"endAt":"2026-11-02T10:05:00+02:00","cpuCount":2,"memoryMB":512,"diskSizeMB":1024,"state":"running","envdVersion":"0.2.0",` +
	`"metadata":{"user":"ann","team":""},"volumeMounts":[]}`

func TestPlainListsAreRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`[]`, ` [ ] `, `[{}]`, "[" + listedSandbox + "]", "[\n\t" + listedSandbox + " , " + listedSandbox + "\r]", `[{"metadata":{}}]`} {
		if _, ok := plainSandboxes([]byte(text)); !ok {
			t.Errorf("%s is not read as a plain list", text)
		}
	}
}

// FuzzPlainSandboxes checks that a plain list is read as encoding/json reads it, and has no more
// values than an answer may have.
func FuzzPlainSandboxes(f *testing.F) {
	for _, text := range []string{
		`[]`, "[" + listedSandbox + "," + listedSandbox + "]", `null`, `[null]`, `[{}`, `[{},]`, `[{}]]`, `[{"sandboxID":"a\u0062"}]`, `[{"sandboxID":"ä"}]`, `[{"sandboxID":"a}]`,
		`[{"SANDBOXID":"a"}]`, `[{"other":1}]`, `[{"cpuCount":01}]`, `[{"cpuCount":1.5}]`, `[{"cpuCount":12345678901}]`, `[{"cpuCount":}]`, `[{"cpuCount":null}]`,
		`[{"metadata":{"a":"1"},"metadata":{"b":"2"}}]`, `[{"metadata":{"a":1}}]`, `[{"metadata":{"a":"1","a":"2"}}]`, `[{"volumeMounts":[{"name":"v"}]}]`,
		`[{"startedAt":"never"}]`, `[{"startedAt":"2026-11-02T10:00:00"}]`, `[{"state":"running","state":"paused"}]`, `[{"sandboxID":"a"}{"sandboxID":"b"}]`, `[{"sandboxID" "a"}]`,
		"[" + strings.Repeat("{},", maxAnswerValues/2) + "{}]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := plainSandboxes(text)
		if !ok {
			return
		}
		if n := strings.Count(string(text), "{}"); n > maxAnswerValues {
			t.Fatalf("%d sandboxes are read", n)
		}
		var decoded []sandboxJSON
		must.Do(t, json.Unmarshal(text, &decoded))
		want := make([]SandboxInfo, len(decoded))
		for i := range decoded {
			want[i] = decoded[i].info()
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: got %+v, encoding/json: %+v", text, got, want)
		}
	})
}

// A list of 10,000 sandboxes is read in pages, and most of its time was once the decoding.
func TestPlainListsAllocateLittle(t *testing.T) {
	one := strings.Replace(listedSandbox, `"metadata":{"user":"ann","team":""},`, "", 1)
	page := []byte("[" + strings.Repeat(one+",", 99) + one + "]")
	got := testing.AllocsPerRun(10, func() {
		if list, ok := plainSandboxes(page); !ok || len(list) != 100 {
			t.Errorf("got %d sandboxes, %v, want 100", len(list), ok)
		}
	})
	if got > 3*100 {
		t.Errorf("a page of 100 sandboxes takes %v allocations, want at most three for each sandbox", got)
	}
}
