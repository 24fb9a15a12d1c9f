package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pyshim"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/state"
)

// scriptedHost answers as a kernel would whose code is a function of the test. It lives in
// a bubble of synctest, where every time in the audit is known.
type scriptedHost struct {
	*pythonHost // nil: nothing else of a host is used

	t       *testing.T
	code    map[string]func(context.Context, kernelconn.Handler) (jupyter.ExecuteReply, error)
	answers map[string]any // values of expressions; a missing one evaluates to None
	logger  *slog.Logger
	calls   int
}

func (h *scriptedHost) about() about {
	return about{sandbox: "sandbox-1", template: "template-1", logger: h.logger}
}

func (h *scriptedHost) execute(ctx context.Context, _ string, request jupyter.ExecuteRequest, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
	reply := jupyter.ExecuteReply{Status: "ok"}
	if run := h.code[request.Code]; run != nil {
		var err error
		if reply, err = run(ctx, handler); err != nil || reply.Status != "ok" {
			return reply, err
		}
	}
	reply.UserExpressions = map[string]jupyter.ExpressionReply{}
	for key, expression := range request.UserExpressions {
		document, err := json.Marshal(string(mustValue(h.t, h.answers[expression]).Bytes()))
		if err != nil {
			return reply, err
		}
		reply.UserExpressions[key] = jupyter.ExpressionReply{Status: "ok", Data: map[string]json.RawMessage{pyshim.MIME: document}}
	}
	return reply, nil
}

// begin begins a run with a host that is prepared for it.
func (h *scriptedHost) begin(p Params) *Run {
	h.t.Helper()
	h.answers[pyshim.CallTools("placed")] = map[string]any{"placed": true}
	r, err := newRun(&runs{}, h, &runContext{id: "context-1"}, p)
	must.Do(h.t, err)
	return r
}

// call makes a call of a tool as Python does, and waits for its reply.
func (h *scriptedHost) call(ctx context.Context, handler kernelconn.Handler, name, document string) error {
	h.calls++
	waiting := fmt.Sprintf(`{"calls":[],"waiting":[%d]}`, h.calls)
	for question := fmt.Sprintf("{\"calls\":[[%d,%q]],\"waiting\":[]}\n%s", h.calls, name, document); ; question = waiting {
		reply, err := handler.Input(ctx, bridgePrefix+"1."+question, false)
		if err != nil || reply != ".[]" {
			return err
		}
	}
}

// streamed sends output of code.
func streamed(h kernelconn.Handler, name, text string) error {
	content, err := json.Marshal(jupyter.StreamContent{Name: name, Text: text})
	if err != nil {
		return err
	}
	return h.Message(&jupyter.Message{Header: jupyter.Header{MsgType: "stream"}, Content: content})
}

// flakyWriter writes only half of the data in one of its writes, and fails there.
type flakyWriter struct {
	bytes.Buffer
	writes, fails int // from 1; with 0, none fails

	log lockedBuffer // of the run
}

func (w *flakyWriter) Write(p []byte) (int, error) {
	if w.writes++; w.writes != w.fails {
		return w.Buffer.Write(p)
	}
	n, _ := w.Buffer.Write(p[:len(p)/2])
	return n, errFull
}

const auditSecret = "s3cr3t-0123456789"

// audited are runs. Each has its audit in testdata/audit.
var audited = map[string]func(t *testing.T, w *flakyWriter) *Run{
	"guarded":   guardedRun,
	"unguarded": unguardedRun,
	// The last step counts: a run that went on after an error has not failed.
	"mended": func(t *testing.T, w *flakyWriter) *Run { t.Helper(); return plainRun(t, w, "raise", "x = 1") },
	"empty":  func(t *testing.T, w *flakyWriter) *Run { t.Helper(); return plainRun(t, w) },
}

// guardedRun has every event: calls of each kind, a panic, a step that is refused, one that
// is cut off, the final answer, and a call between steps.
func guardedRun(t *testing.T, w *flakyWriter) *Run {
	t.Helper()
	type nothing struct{}
	h := &scriptedHost{t: t, answers: map[string]any{
		pyshim.CallTools("end"): map[string]any{"refused": []any{"fetch", "x" + auditSecret}},
	}, logger: slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	saw := func(imports []any, violations ...any) {
		h.answers[pyshim.CallGuard("report")] = map[string]any{"imports": imports, "violations": violations}
	}
	refused := map[string]any{
		"rule": "import", "name": "os", "line": 2, "message": "Import of os is not allowed: " + auditSecret, "suggestion": "Allowed modules: math, " + auditSecret[:minBeginning],
	}
	h.code = map[string]func(context.Context, kernelconn.Handler) (jupyter.ExecuteReply, error){
		"import math\nfetch('" + auditSecret + "')": func(ctx context.Context, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
			saw([]any{"math", "json"})
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble, whose clock it moves
			return jupyter.ExecuteReply{Status: "ok"}, errors.Join(
				streamed(handler, "stdout", strings.Repeat("x", 1000)), streamed(handler, "stderr", "warning\n"),
				h.call(ctx, handler, "fetch", `{"v":1,"value":{"Key":"`+auditSecret+`"}}`))
		},
		"import math\nimport os": func(ctx context.Context, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
			saw([]any{"math"}, refused)
			return jupyter.ExecuteReply{Status: "error", ErrorContent: jupyter.ErrorContent{Name: "GuardViolation", Value: "Import of os: " + auditSecret}}, errors.Join(
				h.call(ctx, handler, "breaks", `{"v":1,"value":{}}`), h.call(ctx, handler, "fails", `{"v":1,"value":{}}`), h.call(ctx, handler, "no-"+auditSecret, `{"v":1,"value":{}}`))
		},
		"while True: pass": func(ctx context.Context, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
			saw([]any{"random"}, refused)
			limited, unbind := handler.Within(ctx)
			defer unbind()
			go func() { _ = h.call(limited, handler, "waits", `{"v":1,"value":{}}`) }()
			<-limited.Done()
			synctest.Wait() // the call has been recorded
			return jupyter.ExecuteReply{}, context.Cause(limited)
		},
		"final_answer(1)": func(ctx context.Context, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
			saw([]any{})
			return jupyter.ExecuteReply{Status: "ok"}, h.call(ctx, handler, "final_answer", `{"v":1,"value":{"answer":["`+auditSecret+`",1]}}`)
		},
	}
	st := state.New()
	set(t, st, "rows", 1)
	r := h.begin(Params{
		Prompt: "the task: " + auditSecret, Audit: w, Redact: []string{auditSecret}, State: st, Guard: &Guard{},
		Limits: Limits{StepTimeout: time.Minute, MaxOutputBytes: 100},
		Tools: []Tool{
			MustTool("fetch", "", func(context.Context, struct{ Key string }) (string, error) {
				time.Sleep(1500 * time.Microsecond) //nolint:forbidigo // in a bubble, whose clock it moves
				return "found", nil
			}),
			MustTool("fails", "", func(context.Context, nothing) (int, error) { return 0, errors.New("no " + auditSecret) }),
			MustTool("breaks", "", func(context.Context, nothing) (int, error) { panic("out of " + auditSecret) }),
			MustTool("waits", "", func(ctx context.Context, _ nothing) (int, error) { <-ctx.Done(); return 0, context.Cause(ctx) }),
		},
	})
	r.Installation = &sandbox.Installation{Packages: []sandbox.InstalledPackage{{Name: "numpy", Version: "2.1.0"}}}
	r.log.begin()
	time.Sleep(time.Second) //nolint:forbidigo // in a bubble, whose clock it moves
	if err := r.SpendTokens(t.Context(), 3); err != nil {
		t.Error(err)
	}
	if err := r.SpendTokens(t.Context(), 4); err != nil {
		t.Error(err)
	}
	for _, code := range []string{"import math\nfetch('" + auditSecret + "')", "import math\nimport os", "while True: pass", "final_answer(1)"} {
		step, err := r.Exec(t.Context(), code)
		if err != nil && !errors.Is(err, ErrStepTimeout) {
			t.Errorf("%s: %v", code, err)
		}
		if text := fmt.Sprintf("%+v", *step); strings.Contains(text, auditSecret[:minBeginning]) {
			t.Errorf("the step has the secret: %s", text)
		}
	}
	return r
}

// unguardedRun imports modules, which only its code shows, and ends with an error.
func unguardedRun(t *testing.T, w *flakyWriter) *Run {
	t.Helper()
	return plainRun(t, w, "import b.c as d, a; import not_seen\n  from e import f\nx = 'import g'", "raise")
}

// plainRun runs code that does nothing, or raises an exception.
func plainRun(t *testing.T, w *flakyWriter, code ...string) *Run {
	t.Helper()
	h := &scriptedHost{t: t, answers: map[string]any{}, logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	h.code = map[string]func(context.Context, kernelconn.Handler) (jupyter.ExecuteReply, error){
		"raise": func(context.Context, kernelconn.Handler) (jupyter.ExecuteReply, error) {
			return jupyter.ExecuteReply{Status: "error", ErrorContent: jupyter.ErrorContent{Name: "ValueError", Value: "no"}}, nil
		},
	}
	r := h.begin(Params{Audit: w})
	r.log.begin()
	for _, code := range code {
		if _, err := r.Exec(t.Context(), code); err != nil {
			t.Error(err)
		}
	}
	return r
}

// golden returns an audit with the id of its run replaced, and the stacks of panics. It
// checks that a stack leads to the tool.
func golden(t *testing.T, r *Run, audit string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(audit, r.ID(), "RUN")) {
		var event struct{ Event, Stack string }
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if event.Event == "panic" {
			if !strings.Contains(event.Stack, "agent.guardedRun") {
				t.Errorf("the stack does not lead to the tool: %s", event.Stack)
			}
			stack, err := json.Marshal(event.Stack)
			must.Do(t, err)
			line = strings.ReplaceAll(line, string(stack), `"STACK"`)
		}
		b.WriteString(line)
	}
	return b.String()
}

// TestGoldenAudit compares whole audits, with every event and every field, and the counters
// of Metrics. Each line is one write, and the last one is written once.
// UPDATE_AUDITS=1 writes the files anew.
func TestGoldenAudit(t *testing.T) {
	t.Parallel()
	for name, audited := range audited {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var w flakyWriter
				r := audited(t, &w)
				during := r.Metrics()
				time.Sleep(time.Second) //nolint:forbidigo // in a bubble, whose clock it moves
				if later := r.Metrics(); later.Duration != during.Duration+time.Second {
					t.Errorf("a second later, the run that is open has lasted %v, want a second more than %v", later.Duration, during.Duration)
				}
				for range 2 { // the second time changes nothing
					if err := errors.Join(r.Close(), r.log.end(nil)); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Second) //nolint:forbidigo // in a bubble, whose clock it moves
				}
				got := golden(t, r, w.String())
				m, err := json.Marshal(r.Metrics())
				must.Do(t, err)
				got += string(m) + "\n"
				file := filepath.Join("testdata", "audit", name+".jsonl")
				if os.Getenv("UPDATE_AUDITS") != "" {
					if err := os.WriteFile(file, []byte(got), 0o644); err != nil { //nolint:gosec // a file of this repository
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				must.Do(t, err)
				if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
					t.Errorf("UPDATE_AUDITS=1 go test -run TestGoldenAudit ./sandbox/agent accepts this (-want +got):\n%s", diff)
				}
				if log := w.log.String(); strings.Contains(log, auditSecret[:minBeginning]) || name == "guarded" && strings.Count(log, redacted) < 4 {
					t.Errorf("got the log %s, want %q in it in place of the secret", log, redacted)
				}
				if lines := strings.Count(w.String(), "\n"); lines != w.writes {
					t.Errorf("%d lines in %d writes, want one for each", lines, w.writes)
				}
			})
		})
	}
}

// TestAuditThatFailed checks that nothing is written after any write that failed: an audit
// without an end is short, never one with a gap.
func TestAuditThatFailed(t *testing.T) {
	t.Parallel()
	all := 1
	for fails := 0; fails <= all; fails++ {
		synctest.Test(t, func(t *testing.T) {
			w := flakyWriter{fails: fails}
			r := guardedRun(t, &w)
			var want error
			if fails > 0 {
				want = errFull
			}
			for _, err := range []error{r.Close(), r.Close(), r.log.end(nil)} {
				if !errors.Is(err, want) {
					t.Errorf("write %d fails: got %v from the end, want %v", fails, err, want)
				}
			}
			if fails > 0 && w.writes != fails {
				t.Errorf("write %d fails, and %d followed", fails, w.writes-fails)
			}
			if fails == 0 {
				all = w.writes
			}
		})
	}
}

// TestNothingAfterTheEnd checks that a tool that ends after Close has given it up writes
// nothing: the writer is the caller's again.
func TestNothingAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w flakyWriter
		var log lockedBuffer
		release := make(chan struct{})
		h := &scriptedHost{t: t, answers: map[string]any{}, logger: slog.New(slog.NewTextHandler(&log, nil))}
		h.code = map[string]func(context.Context, kernelconn.Handler) (jupyter.ExecuteReply, error){
			"stuck()": func(ctx context.Context, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
				go func() { _ = h.call(ctx, handler, "stuck", `{"v":1,"value":{}}`) }()
				synctest.Wait()
				return jupyter.ExecuteReply{Status: "ok"}, nil
			},
		}
		r := h.begin(Params{Audit: &w, Tools: []Tool{MustTool("stuck", "", func(context.Context, struct{}) (int, error) { <-release; panic("late") })}})
		if _, err := r.Exec(t.Context(), "stuck()"); err != nil {
			t.Error(err)
		}
		if err := r.Close(); err == nil || !strings.Contains(err.Error(), "a tool did not return") {
			t.Errorf("got %v, want that a tool did not return", err)
		}
		before := w.String()
		close(release)
		synctest.Wait()
		if after := strings.TrimPrefix(w.String(), before); after != "" {
			t.Errorf("after Close the audit goes on: %s", after)
		}
		if !strings.Contains(log.String(), "late") {
			t.Errorf("got %q, want the panic in the log", log.String())
		}
	})
}

// TestImportsOfCode checks the modules that statements of code name, and how many of them a run keeps.
func TestImportsOfCode(t *testing.T) {
	t.Parallel()
	for code, want := range map[string][]string{
		"": {}, "x = 1": {}, "import b, a": {"a", "b"}, "import a,": {"a"}, "import , a": {"a"}, "\tfrom a.b import c": {"a.b"}, "import a as b, c.d as e": {"a", "c.d"},
	} {
		if diff := cmp.Diff(want, importsOf(code)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", code, diff)
		}
	}
	l := &runLog{imports: map[string]bool{}}
	for i := range maxImports {
		l.imported([]string{fmt.Sprint("m", i)})
	}
	l.imported([]string{"one", "more"})
	if n := len(l.imports); n != maxImports || l.imports["one"] {
		t.Errorf("the run keeps %d modules, want the first %d", n, maxImports)
	}
}
