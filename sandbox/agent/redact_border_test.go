package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/state"
)

// pieces are the parts of a secret that must arrive nowhere: each 8 bytes of it and of its
// forms, or a shorter secret as a whole.
type pieces struct {
	secret string
	all    map[uint64]bool
	bytes  [256]bool // that pieces have
}

func piecesOf(secret string) *pieces {
	p := &pieces{secret: secret, all: map[uint64]bool{}}
	for _, form := range formsOf(secret) {
		for i := range max(0, len(form)-minBeginning+1) {
			p.all[binary.BigEndian.Uint64([]byte(form[i:]))] = true
		}
		for _, c := range []byte(form) {
			p.bytes[c] = true
		}
	}
	return p
}

// in returns a piece that a text has, or "".
func (p *pieces) in(text string) string {
	last, n := uint64(0), 0 // the bytes that may be of a piece, and how many they are
	for i := range len(text) {
		if !p.bytes[text[i]] {
			n = 0
			continue
		}
		last, n = last<<8|uint64(text[i]), n+1
		if n >= minBeginning && p.all[last] {
			return text[i+1-minBeginning : i+1]
		}
	}
	if len(p.secret) < minBeginning && strings.Contains(text, p.secret) {
		return p.secret
	}
	return ""
}

// longSecret has n bytes, with quotes, escapes and line separators among them.
func longSecret(n int) string {
	letters := []rune("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\"'\\\n\u2028")
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test that is the same each time
	var b strings.Builder
	for b.Len() <= n-len("\u2028") {
		b.WriteRune(letters[random.IntN(len(letters))])
	}
	return b.String() + strings.Repeat("~", n-b.Len())
}

func mustRedactor(t *testing.T, secret string) *redactor {
	t.Helper()
	r, err := newRedactor([]string{secret})
	must.Do(t, err)
	return r
}

// records are the audit and the log of a run without a kernel.
type records struct{ audit, log bytes.Buffer }

func (r *records) run(t *testing.T, redact *redactor, tools ...Tool) *stepCalls {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	run := &Run{
		context: &runContext{}, about: about{logger: logger}, params: Params{Audit: &r.audit, Tools: tools},
		calls: map[*inFlight]struct{}{}, redact: redact,
	}
	run.bridge, run.log = newBridge(run, tools), newRunLog(run)
	return run.bridge.step(t.Context(), 1, func() {})
}

// answer makes a call and returns the reply that Python receives.
func (s *stepCalls) answer(t *testing.T, name string, arguments any) string {
	t.Helper()
	c := &bridgedCall{cancel: func() {}}
	s.start(t.Context(), c, name, mustValue(t, arguments).Bytes())
	s.bridge.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(c.reply)
}

// doors are tools. Each sends the text of written out in another way. borders are the lengths at
// which these texts are shortened.
func doors(written func() string) (tools map[string]Tool, borders map[string]int) {
	said := func() error { return errors.New(written()) }
	type nothing struct{}
	type number struct {
		Text int `py:"text"`
	}
	tools = map[string]Tool{
		"fails": MustTool("fails", "", func(context.Context, nothing) (int, error) { return 0, said() }),
		"typed": MustTool("typed", "", func(context.Context, nothing) (int, error) {
			return 0, &ToolError{Type: written(), Message: written()}
		}),
		"wraps": MustTool("wraps", "", func(context.Context, nothing) (int, error) { return 0, fmt.Errorf("%w: %.4090s", said(), written()) }),
		"declines": MustTool("declines", "", func(context.Context, nothing) (int, error) { return 0, nil },
			WithApproval(func(context.Context, ToolCall) error { return said() })),
		"panics": MustTool("panics", "", func(context.Context, nothing) (int, error) { panic(written()) }),
		"result": MustTool("result", "", func(context.Context, nothing) (state.Dict, error) {
			return state.Dict{{Key: written(), Value: 1}, {Key: written(), Value: 2}}, nil // which has no Python form
		}),
		"wrong": MustTool("wrong", "", func(context.Context, number) (int, error) { return 0, nil }),
	}
	return tools, map[string]int{
		"fails": maxToolError, "typed": maxToolError, "wraps": maxToolError, "declines": maxToolError,
		"panics": maxPanic, "result": 64, "wrong": 64, "missing": maxToolName,
	}
}

// bordering are secrets of 4 to 4096 bytes.
var bordering = []string{
	"k3y!", "pass\"w\u2028d", "sk-0123456789abcdefghijklmnopqrstuvwxyz-ABCD",
	"a\"b'c\\d\ne\u2028f\tg\x01h\u00a0i\x7fj<&>k", longSecret(100), longSecret(4096),
}

// eachSecret runs a test for each of the secrets.
func eachSecret(t *testing.T, test func(t *testing.T, secret string)) {
	t.Parallel()
	for _, secret := range bordering {
		t.Run(fmt.Sprint(len(secret)), func(t *testing.T) {
			t.Parallel()
			test(t, secret)
		})
	}
}

// TestSecretInShortText checks that no eight bytes of a secret are left in a shortened text,
// wherever it is cut, here or by others before.
func TestSecretInShortText(t *testing.T) {
	eachSecret(t, func(t *testing.T, secret string) {
		parts, redact := piecesOf(secret), mustRedactor(t, secret)
		text := strings.Repeat(".", 64) + secret
		for shown := range len(secret) + 1 {
			cuts := map[string]string{
				"here":      redact.short(text, 64+shown),
				"elsewhere": redact.short(text[:64+shown], len(text)),
			}
			if len(secret) <= 100 {
				cuts["in an error"] = redact.err(errors.New(text[:64+shown] + ": failed")).Error()
				cuts["by Go, quoted"] = redact.short(strconv.Quote(text[:64+shown]), 2*len(text))
			}
			for cut, short := range cuts {
				if piece := parts.in(short); piece != "" {
					t.Fatalf("cut %s after %d of %d bytes: got %q with %q of the secret", cut, shown, len(secret), short, piece)
				}
			}
		}
	})
}

// TestShortText checks that text without a secret is shortened as it would be without
// redaction, and that a long one is not read to its end.
func TestShortText(t *testing.T) {
	t.Parallel()
	redact := mustRedactor(t, "secret-0123")
	for _, text := range []string{"", "abc", strings.Repeat("é", shortPiece), strings.Repeat("secret", 2*shortPiece), strings.Repeat("x", shortPiece) + "secret-"} {
		for _, limit := range []int{0, 1, 8, shortPiece - 1, shortPiece, shortPiece + 1, 3 * shortPiece} {
			if got, want := redact.short(text, limit), clip.Text(text, limit); got != want {
				t.Errorf("%.20q of %d bytes, limit %d: got %.20q of %d bytes, want %.20q of %d bytes", text, len(text), limit, got, len(got), want, len(want))
			}
		}
	}
	if got, want := redact.short("a secret-0123 and secret-01 and more", 29), "a [redacted] and [redacted] a…"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRepeatedSecret checks a secret that may end at each byte of a long text: marking all of it
// again for each byte would take minutes.
func TestRepeatedSecret(t *testing.T) {
	t.Parallel()
	redact, text := mustRedactor(t, strings.Repeat("a", maxSecrets/2)), strings.Repeat("a", 4<<20)
	if got := redact.text(text + "b"); got != redacted+"b" {
		t.Errorf("got %.40q, want it redacted", got)
	}
	if got := redact.short(text, maxToolError); got != redacted {
		t.Errorf("shortened: got %.40q, want it redacted", got)
	}
}

// TestSecretAtTheBorder checks that no eight bytes of a secret reach Python, the audit and the
// log, wherever it stands in a text that is shortened, and however it is written there.
func TestSecretAtTheBorder(t *testing.T) {
	inJSON := func(s string) string {
		text, err := json.Marshal(s)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	forms := map[string]func(string) string{
		"plain": func(s string) string { return s }, "Go": strconv.Quote, "ASCII": strconv.QuoteToASCII, "JSON": inJSON,
	}
	eachSecret(t, func(t *testing.T, secret string) {
		parts, redact := piecesOf(secret), mustRedactor(t, secret)
		var written string // the text for the doors
		tools, borders := doors(func() string { return written })
		for door, border := range borders {
			for form, write := range forms {
				if form != "plain" && (len(secret) > 100 || door != "fails") {
					continue // the others write it in a form of their own
				}
				for shown := range len(write(secret)) + 1 {
					if (door == "panics" || len(secret) > 100) && shown%61 != 9 {
						continue // of the long texts, every 61st takes each way
					}
					written = write(strings.Repeat(".", max(0, border-shown)) + secret)
					var r records
					name, arguments, given := door, map[string]any{}, []Tool{tools[door]}
					switch door {
					case "wrong":
						arguments[written] = written
					case "missing":
						name, given = written, nil
					}
					reply := r.run(t, redact, given...).answer(t, name, arguments)
					for to, text := range map[string]string{"Python": reply, "the audit": r.audit.String(), "the log": r.log.String()} {
						if piece := parts.in(text); piece != "" {
							t.Fatalf("%s, %s, %d of %d bytes before the border: %s has %q of the secret: %.200q", door, form, shown, len(secret), to, piece, text)
						}
					}
				}
			}
		}
	})
}

// TestSecretInPreview checks values without a Go form: the kernel sends only the beginning of
// their repr.
func TestSecretInPreview(t *testing.T) {
	t.Parallel()
	secret := longSecret(100)
	parts, redact := piecesOf(secret), mustRedactor(t, secret)
	for shown := range len(secret) + 1 {
		repr, err := json.Marshal("[" + secret[:shown])
		must.Do(t, err)
		v, err := state.Parse(fmt.Appendf(nil, `{"v":1,"value":{"$":"opaque","type":"list","repr":%s,"reason":""}}`, repr), state.Bounds{})
		must.Do(t, err)
		if piece := parts.in(string(redact.value(v).Bytes())); piece != "" {
			t.Fatalf("%d of %d bytes: got %q of the secret", shown, len(secret), piece)
		}
	}
}

// TestRefusedBesideSecret checks that the violation that ended a step is found although the
// guard's text has the beginning of a secret, which is hidden there.
func TestRefusedBesideSecret(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	r := h.begin(t, &rs, Params{Guard: &Guard{}, Redact: []string{"requests-0123"}})
	defer r.Close()
	step, err := r.Exec(t.Context(), "import requests")
	must.Do(t, err)
	if got, want := verdict(step), "import "+redacted; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// cannedHost answers like a kernel, with any text.
type cannedHost struct {
	*pythonHost
	reply jupyter.ExecuteReply
	err   error
}

func (h *cannedHost) execute(context.Context, string, jupyter.ExecuteRequest, kernelconn.Handler) (jupyter.ExecuteReply, error) {
	return h.reply, h.err
}

// TestSecretInErrorsOfRuns checks that errors from a kernel have no secret, wherever the text was
// shortened.
func TestSecretInErrorsOfRuns(t *testing.T) {
	t.Parallel()
	secret := longSecret(100)
	parts, redact := piecesOf(secret), mustRedactor(t, secret)
	for shown := range len(secret) + 1 {
		said := strings.Repeat(".", 512-shown) + secret
		for name, host := range map[string]*cannedHost{
			"an exception": {reply: jupyter.ExecuteReply{Status: "error", ErrorContent: jupyter.ErrorContent{Name: said, Value: said, Traceback: []string{said, said}}}},
			"an error":     {err: errors.New(said)},
		} {
			var r records
			run := r.run(t, redact).bridge.run
			run.host = host
			_, get := run.Get(t.Context(), "x")
			_, changed := run.Changed(t.Context())
			step, exec := run.Exec(t.Context(), "x")
			said := map[string]string{"the audit": r.audit.String(), "the log": r.log.String()}
			for call, err := range map[string]error{"Get": get, "Changed": changed, "Pull": run.Pull(t.Context(), state.New()), "Delete": run.Delete(t.Context(), "x"), "Exec": exec} {
				switch {
				case err != nil:
					said[call] = err.Error()
				case call == "Exec" && step.Error != nil: // for which an exception is no error
					said[call] = step.Error.Name + step.Error.Value + step.Error.Traceback
				default:
					t.Errorf("%s, %s: got no error", name, call)
				}
			}
			for in, text := range said {
				if piece := parts.in(text); piece != "" {
					t.Fatalf("%s, %d bytes before the border: %s has %q of the secret: %q", name, shown, in, piece, text)
				}
			}
		}
	}
}

// TestSecretInTheKernel asks code in the kernel, for each way into it, whether a part of a secret
// arrived. The output is only yes or no, so that redaction of the output changes nothing.
// Everything else that leaves the kernel is checked here.
func TestSecretInTheKernel(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		const secret, number = "s3cr3t-\"v\\l'\u2028ue-0123", 1711471147
		type nothing struct{}
		var rs runs
		var audit bytes.Buffer
		var log lockedBuffer
		said := errors.New(strings.Repeat(".", maxToolError-len(secret)+1) + secret)
		var traced lockedBuffer
		trace := Trace{
			Step: func(ctx context.Context, _ int, _ string) (context.Context, func(*Step, error)) {
				return ctx, func(s *Step, err error) { fmt.Fprintf(&traced, "%+v %v", *s, err) }
			},
			Tool: func(ctx context.Context, _ ToolCall) (context.Context, func(error)) {
				return ctx, func(err error) { fmt.Fprint(&traced, err) }
			},
		}
		r := h.begin(t, &rs, Params{Audit: &audit, Trace: &trace, Redact: []string{secret, strconv.Itoa(number)}, Tools: []Tool{
			MustTool("counts", "", func(context.Context, nothing) ([]int, error) { return []int{number}, nil }),
			MustTool("keyed", "", func(context.Context, nothing) (state.Dict, error) {
				return state.Dict{{Key: state.Tuple{1, secret}, Value: state.Dict{{Key: secret, Value: 1}}}, {Key: 1, Value: 2}}, nil
			}),
			MustTool("explodes", "", func(context.Context, nothing) (int, error) { return 0, nil }, WithApproval(func(context.Context, ToolCall) error { panic(said) })),
			MustTool("gives", "", func(context.Context, nothing) (map[string]any, error) {
				return map[string]any{secret: 1, "list": []any{secret, "<" + secret + ">"}, "raw": []byte(secret)}, nil
			}),
			MustTool("fails", "", func(context.Context, nothing) (int, error) { return 0, said }),
			MustTool("typed", "", func(context.Context, nothing) (int, error) {
				return 0, &ToolError{Type: secret, Message: secret}
			}),
			MustTool("declines", "", func(context.Context, nothing) (int, error) { return 0, nil }, WithApproval(func(context.Context, ToolCall) error { return said })),
			MustTool("panics", "", func(context.Context, nothing) (int, error) { panic(secret) }),
			MustTool("wrong", "", func(context.Context, nothing) (int, error) { return 0, &argumentError{said} }),
		}})
		r.log.logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		mustExec(t, r, fmt.Sprintf(`
secret = bytes.fromhex(%q).decode()
bridge = __import__('sys').modules['_e2bctl_tools']._bridge
def has(text):
    forms = [secret, repr(secret)[1:-1], '%d']
    return any(form[i:i + 8] in text for form in forms for i in range(len(form) - 7))
def door(call):
    try:
        return repr(call()) + str(call())
    except Exception as e:
        return str(e) + repr(vars(e)) + repr(e)
def told(name, arguments):
    try:
        bridge.call(name, arguments)
    except Exception as e:
        return str(e)
`, hex.EncodeToString([]byte(secret)), number))
		if step := mustExec(t, r, "print(has('x' + secret[:8]))"); step.Stdout != "True\n" {
			t.Errorf("got %q, want the kernel to recognise its secret", step.Stdout)
		}
		for _, tool := range []string{
			"door(gives)", "door(keyed)", "door(counts)", "door(fails)", "door(typed)", "door(declines)", "door(explodes)", "door(panics)", "door(wrong)",
			// Messages that the functions in Python would not send. The names come from the kernel, and must not come back.
			"told(secret, {})", "told('wrong', {secret: 1})", "told('gives', [secret])", "told('final_answer', {secret: 1})",
			"told('wrong', {'text': type(secret, (), {})()})", "told('x' * 55 + secret, {})",
		} {
			if step := mustExec(t, r, "text = "+tool+"\nprint(has(text), text is None)"); step.Stdout != "False False\n" {
				t.Errorf("%s: got %q, want the kernel to have been told something, and nothing of the secret", tool, step.Stdout)
			}
		}
		value := mustExec(t, r, "{secret: [secret], 1: secret.encode()}").Value
		counted := mustExec(t, r, fmt.Sprintf("[%d]", number)).Value
		mustExec(t, r, "final_answer({secret: 'x' + secret})")
		final, _ := r.final()
		must.Do(t, r.Close())
		parts := piecesOf(secret)
		for to, text := range map[string]string{
			"the step's value": string(value.Bytes()), "a number": string(counted.Bytes()), "the final answer": string(final.Bytes()),
			"the audit": audit.String(), "the log": log.String(), "the trace": traced.String(),
		} {
			if strings.Contains(strings.ReplaceAll(text, fmt.Sprintf("'%d'", number), ""), strconv.Itoa(number)) {
				t.Errorf("%s has the number: %.300q", to, text)
			}
			if piece := parts.in(text); piece != "" {
				t.Errorf("%s has %q of the secret: %.300q", to, piece, text)
			}
		}
	})
}

// TestMalformedOutput checks that a message that cannot be redacted is an error, and is not passed on.
func TestMalformedOutput(t *testing.T) {
	t.Parallel()
	redact, err := newRedactor([]string{"a secret"})
	must.Do(t, err)
	handle, flush := redact.output(func(m *jupyter.Message) error {
		t.Errorf("got the message %s %q, want none", m.Header.MsgType, m.Content)
		return nil
	})
	for kind, content := range map[string]string{
		"stream": `{"name":"stdout","text":`, "display_data": `{"data":`, "error": ``,
	} {
		err := handle(&jupyter.Message{Header: jupyter.Header{MsgType: kind}, Content: []byte(content)})
		if err == nil || !strings.Contains(err.Error(), "read the kernel's "+kind+": ") {
			t.Errorf("%s: got error %v, want that the message is malformed", kind, err)
		}
	}
	must.Do(t, flush())
}

// TestSecretInRecords checks texts that do not come from the kernel's code: the value and the
// stack of a panic, the end of a step, keys and numbers of displayed data, reports of the guard,
// and answers that have a secret only when Python shows them.
func TestSecretInRecords(t *testing.T) {
	t.Parallel()
	secret := longSecret(64)
	parts := piecesOf(secret)
	redact, err := newRedactor([]string{secret, "1711471147", "4711, 4712"})
	must.Do(t, err)
	said := map[string]string{}
	for what, record := range map[string]func(*runLog){
		"panic": func(l *runLog) { l.panicked(t.Context(), 1, "tool", secret, nil) },
		"stack": func(l *runLog) { l.panicked(t.Context(), 1, "tool", nil, []byte("goroutine 1:\n"+secret)) },
		"step": func(l *runLog) {
			l.step(t.Context(), "x", &Step{Execution: sandbox.Execution{Error: &sandbox.ExecutionError{Name: "E", Value: "1711471147"}}}, nil, nil)
		},
		"error": func(l *runLog) { l.step(t.Context(), "x", &Step{}, nil, errors.New(secret)) },
	} {
		var r records
		record(r.run(t, redact).bridge.run.log)
		said[what+", in the audit"], said[what+", in the log"] = r.audit.String(), r.log.String()
	}
	content, err := json.Marshal(map[string]any{"data": map[string]any{"application/json": map[string]any{secret: []any{map[string]any{secret: 1711471147}}}}})
	must.Do(t, err)
	message, flush := redact.output(func(m *jupyter.Message) error {
		said["what is displayed"] += string(m.Content)
		return nil
	})
	must.Do(t, errors.Join(message(&jupyter.Message{Header: jupyter.Header{MsgType: "display_data"}, Content: content}), flush()))
	report := guardReport{Imports: []string{secret}, Violations: []Violation{{Rule: Rule(secret), Name: secret, Message: secret, Suggestion: secret}}}
	report.bound(redact)
	v := report.Violations[0]
	said["imports"], said["rule"], said["name"], said["message"], said["suggestion"] = report.Imports[0], string(v.Rule), v.Name, v.Message, v.Suggestion
	answer := Step{Final: true, Value: mustValue(t, state.Tuple{4711, 4712}), redact: redact}
	said["the answer"] = answer.Observation()
	var r records
	said["a malformed request"] = ask(t, r.run(t, redact), `1.{"waiting":[17114711470000000000000000]}`)
	var natural any // packed data is no value any longer when a part is hidden
	if err := redact.value(mustValue(t, []byte(secret))).Decode(&natural); err != nil {
		t.Error(err)
	}
	said["packed data"] = fmt.Sprint(natural)
	for to, text := range said {
		if piece := parts.in(text); piece != "" || strings.Contains(text, "4711") || !strings.Contains(text, redacted) {
			t.Errorf("%s has %q of the secret: %q, want %q in its place", to, piece, text, redacted)
		}
	}
	if text := said["what is displayed"]; strings.Count(text, redacted) != 3 {
		t.Errorf("got %s, want two keys and a number hidden", text)
	}
}
