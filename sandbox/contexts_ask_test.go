package sandbox

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// helpful serves a kernel that answers questions about code with content. It returns a channel that
// receives the questions.
func helpful(s *service, content map[string]any) (asked <-chan map[string]any) {
	questions := make(chan map[string]any, 10)
	s.kernel = func(k *jupytertest.Kernel) {
		for m := k.Next(); m != nil; m = k.Next() {
			var question map[string]any
			_ = json.Unmarshal(m.Content, &question)
			questions <- question
			k.Status(m, "busy")
			k.Say(m, jupyter.Shell, strings.TrimSuffix(m.Header.MsgType, "_request")+"_reply", content)
			k.Status(m, "idle")
		}
	}
	return questions
}

// Kernels count characters, and Go counts bytes.
func TestComplete(t *testing.T) {
	t.Parallel()
	s := newService(t)
	asked := helpful(s, map[string]any{"status": "ok", "matches": []string{"größe"}, "cursor_start": 4, "cursor_end": 6})
	sb := s.sandbox()
	code := "ä = grö"
	got, err := sb.Contexts.Complete(t.Context(), code, len(code)-len("ö"), nil)
	must.Do(t, err)
	if !slices.Equal(got.Matches, []string{"größe"}) || code[got.Start:got.End] != "gr" {
		t.Errorf("got %+v, want größe in place of gr", got)
	}
	if q := <-asked; q["cursor_pos"] != 6.0 || q["code"] != code {
		t.Errorf("the kernel was asked %v, want the cursor after 6 characters", q)
	}
	for _, p := range []*CompleteParams{{Context: testContext}, {Language: "python"}} {
		if _, err := sb.Contexts.Complete(t.Context(), code, 0, p); err != nil {
			t.Errorf("%+v: got error %v", p, err)
		}
	}
	for _, cursor := range []int{-1, 1, len(code) + 1} {
		_, err := sb.Contexts.Complete(t.Context(), code, cursor, nil)
		must.Is(t, err, api.ErrInvalidArgument)
	}
	_, err = sb.Contexts.Complete(t.Context(), "", 0, &CompleteParams{Context: "a", Language: "bash"})
	must.Is(t, err, api.ErrInvalidArgument)
}

// A kernel may answer with places that the code does not have.
func TestCompleteOutside(t *testing.T) {
	t.Parallel()
	s := newService(t)
	helpful(s, map[string]any{"status": "ok", "matches": []string{"x"}, "cursor_start": 70, "cursor_end": -3})
	got, err := s.sandbox().Contexts.Complete(t.Context(), "ab", 2, nil)
	must.Do(t, err)
	if got.Start != 0 || got.End != 0 {
		t.Errorf("got %+v, want a place within the code", got)
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	s := newService(t)
	asked := helpful(s, map[string]any{"status": "ok", "found": true, "data": map[string]any{"text/plain": "\x1b[31mType:\x1b[0m int", "image/png": 1}})
	text, err := s.sandbox().Contexts.Inspect(t.Context(), "x", 1, &InspectParams{Source: true})
	must.Do(t, err)
	if text != "Type: int" {
		t.Errorf("got %q, want the text without colours", text)
	}
	if q := <-asked; q["detail_level"] != 1.0 {
		t.Errorf("the kernel was asked %v, want the source, too", q)
	}
	none := newService(t)
	helpful(none, map[string]any{"status": "ok", "found": false, "data": map[string]any{"text/plain": "nothing"}})
	if text, err := none.sandbox().Contexts.Inspect(t.Context(), "x", 1, nil); err != nil || text != "" {
		t.Errorf("got %q, %v, want nothing about a name that is not there", text, err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	s := newService(t)
	helpful(s, map[string]any{"status": "incomplete", "indent": "    "})
	got, err := s.sandbox().Contexts.Check(t.Context(), "if x:", nil)
	if err != nil || *got != (CodeCheck{VerdictIncomplete, "    "}) {
		t.Errorf("got %+v, %v, want that more lines follow", got, err)
	}
	_, err = newService(t).sandbox(WithCodeTransport(CodeTransportHTTP)).Contexts.Check(t.Context(), "x", nil)
	if !errors.Is(err, ErrNeedsWebsocket) {
		t.Errorf("over HTTP: got %v, want %v", err, ErrNeedsWebsocket)
	}
}
