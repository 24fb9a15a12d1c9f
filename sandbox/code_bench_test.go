package sandbox

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// benchSandbox returns a sandbox whose kernel costs as little as possible. It is in this process, so
// measurements include its share.
func benchSandbox(tb testing.TB, s *service) *Sandbox {
	tb.Helper()
	server := httptest.NewServer(s)
	tb.Cleanup(server.Close)
	sb, err := Create(tb.Context(), WithAPIKey(testKey), WithAPIURL(server.URL), WithSandboxURL(server.URL), WithDomain("test.invalid"), WithEnvFile(""))
	must.Do(tb, err)
	tb.Cleanup(func() { sb.Close() })
	return sb
}

// two returns a sandbox in which the result of any code is 2, in five messages.
func two(tb testing.TB) *Sandbox {
	tb.Helper()
	s := &service{}
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		k.Say(m, jupyter.IOPub, "execute_result", map[string]any{"data": map[string]any{"text/plain": "2"}, "execution_count": 7})
		k.Reply(m, "ok")
		k.Status(m, "idle")
	})
	return benchSandbox(tb, s)
}

// BenchmarkRunCode measures the cost of a call on this side.
func BenchmarkRunCode(b *testing.B) {
	sb := two(b)
	b.ReportAllocs()
	for b.Loop() {
		if ex, err := sb.RunCode(b.Context(), "1+1", nil); err != nil || ex.Text() != "2" {
			b.Fatal(ex, err)
		}
	}
}

// TestCallAllocations bounds the allocations of a call, with those of the server in this process: 326 of RunCode
// now and 283 of Commands.Run, and a tenth more with the race detector.
func TestCallAllocations(t *testing.T) { // not parallel: it counts the allocations of the process
	echo, code := echoes(t), two(t)
	for _, call := range []struct {
		name string
		most float64
		run  func() error
	}{
		{"RunCode", 450, func() error { _, err := code.RunCode(t.Context(), "1+1", nil); return err }},
		{"Commands.Run", 400, func() error { _, err := echo.Commands.Run(t.Context(), "echo hello", nil); return err }},
	} {
		if got := testing.AllocsPerRun(100, func() { must.Do(t, call.run()) }); got > call.most {
			t.Errorf("%s takes %v allocations, over %v", call.name, got, call.most)
		}
	}
}

func BenchmarkRunCodeOverHTTP(b *testing.B) {
	s := &service{}
	s.execute = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"type":"number_of_executions","execution_count":7}
{"type":"result","text":"2","is_main_result":true,"extra":{}}
{"type":"end_of_execution"}
`)
	}
	sb := benchSandbox(b, s)
	b.ReportAllocs()
	for b.Loop() {
		if ex, err := sb.RunCode(b.Context(), "1+1", nil); err != nil || ex.Text() != "2" {
			b.Fatal(ex, err)
		}
	}
}

// BenchmarkCollectOutput measures collecting alone, of a busy kernel's output in large and
// in tiny pieces.
func BenchmarkCollectOutput(b *testing.B) {
	for name, text := range map[string]string{"64KiB": strings.Repeat("0123456789abcde\n", 4<<10), "tiny": "1\n"} {
		b.Run(name, func(b *testing.B) {
			m := printed("stdout", text)
			c := newCollector(&RunCodeParams{Stdout: io.Discard})
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				must.Do(b, c.message(m))
			}
		})
	}
}

// A call is one message: no further request or report goes with it.
func TestRunCodeIsOneMessage(t *testing.T) {
	t.Parallel()
	s := newService(t)
	messages := make(chan string, 100)
	s.kernel = func(k *jupytertest.Kernel) {
		for m := k.Next(); m != nil; m = k.Next() {
			messages <- m.Header.MsgType
			k.Begin(m)
			k.Reply(m, "ok")
			k.Status(m, "idle")
		}
	}
	sb := s.sandbox()
	for range 10 {
		_, err := sb.RunCode(t.Context(), "1+1", nil)
		must.Do(t, err)
	}
	if n := len(messages); n != 10 {
		t.Errorf("%d messages", n)
	}
	if n := s.seen("GET") + s.seen("POST /api/kernels"); n != 0 {
		t.Errorf("%d requests beside them", n)
	}
}
