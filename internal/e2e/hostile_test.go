//go:build linux

package e2e

import (
	"strconv"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/state"
)

// Code may make the kernel answer anything: the host refuses the answer, puts
// none of it into its state, and continues.
func TestHostileKernel(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	r := begin(t, sb, &agent.Params{Tools: []agent.Tool{add}})
	observe(t, r, "import sys\ns, c = sys.modules['_e2bctl_state'], sys.modules['_e2bctl_codec']\nhonest = s._send\nmine = 1")
	for _, document := range []string{
		`""`, `None`, `"{}"`, `"not JSON"`, `'{"v":1,"value":' + '[' * 100000`, `'{"v":1,"value":' + '9' * 1000000 + '}'`, `"x" * (8 << 20)`,
		`c.encode({"token": "t"}).decode()[:-1]`, `c.encode([1]).decode()`,
		`c.encode({"found": True, "token": "t", "frame": b"", "head": -1, "size": 0}).decode()`,
		`c.encode({"found": True, "token": "t", "frame": b"{}", "head": 2, "size": 1 << 62}).decode()`,
		`c.encode({"found": True, "token": "t", "file": "/etc/shadow", "head": 4, "size": 8}).decode()`,
		`c.encode({"found": True, "token": "t", "file": "../../etc/passwd", "head": 4, "size": 1 << 20}).decode()`,
		`c.encode({"found": True, "token": "t", "file": "/dev/zero", "head": 1 << 30, "size": 1 << 40}).decode()`,
		frame(`{"values":[["x",-1]]}`), frame(`{"values":[["x",1099511627776]],"blobs":[]}`), frame(`{"values":5}`), frame(`{"values":[["x"]],"blobs":[["00",5]]}`),
		frame(`{"values":[["x",2]],"blobs":[]}` + "\n{}"), frame(`{"values":[["",17]],"blobs":[]}` + "\n" + `{"v":1,"value":1}`),
		frame(`{"values":[["x",113]],"blobs":[]}` + "\n" + `{"v":1,"value":{"$":"blob","sha256":"0000000000000000000000000000000000000000000000000000000000000000","size":70000}}`),
	} {
		observe(t, r, "class Answer:\n    def __init__(self, text): self.text = text\n    def _repr_mimebundle_(self, include=None, exclude=None): return {s.MIME: self.text}\ns._send = lambda *a: Answer("+document+")")
		ctx := patience.Context(t)
		st := state.New()
		nothing := strings.Contains(document, `b"{}"`) || strings.Contains(document, `[[""`) // there is no variable to pull, which is not an error
		if err := r.Pull(ctx, st); (err == nil) != nothing || ctx.Err() != nil || len(st.Names()) != 0 {
			t.Errorf("pull %.80s: %v, %q, want no names, and no error: %v", document, err, st.Names(), nothing)
		}
		if v, err := r.Get(ctx, "mine"); err == nil && !strings.Contains(document, `[[""`) {
			t.Errorf("get %.80s: %.80s", document, v.Bytes())
		}
	}
	observe(t, r, "s._send = honest\ndel Answer")
	if v, err := r.Get(t.Context(), "mine"); err != nil || decoded[int](t, v) != 1 {
		t.Errorf("afterwards: %v, want 1 and no error", err)
	}
	if step := observe(t, r, "add(40, 2)"); step.Text() != "42" {
		t.Errorf("afterwards: %+v, want text %q", step, "42")
	}
}

// frame returns Python code that answers with this frame; its first line is the
// head.
func frame(text string) string {
	head, _, _ := strings.Cut(text, "\n")
	quoted := "'" + strings.ReplaceAll(text, "\n", `\n`) + "'"
	return `c.encode({"found": True, "token": "t", "frame": ` + quoted + `.encode(), "head": ` + strconv.Itoa(len(head)+strings.Count(text, "\n")) + `, "size": len(` + quoted + `)}).decode()`
}
