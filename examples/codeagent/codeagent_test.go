package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/examples/codeagent/loop"
	"github.com/e2bctl/e2bctl/examples/codeagent/loop/modeltest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

const key = "sk-0123456789abcdef"

// orders returns a directory with the files for the task, and a file that the code must
// not get.
func orders(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "2026"), 0o700))
	for name, content := range map[string]string{
		"2026/orders.csv": "customer,amount\nada,12\nbob,30\nada,25\n",
		"picture.bin":     "\xff\xfe",
		".env":            "SECRET=1\n",
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	must.Do(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	return dir
}

func TestCodeagent(t *testing.T) {
	sandboxtest.New(t).Setenv(t)
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	j := job{task: "Which customer ordered most?", documents: orders(t), audit: audit, steps: 8}
	model := modeltest.New(t, key, func(chat []loop.Message) string {
		told := chat[len(chat)-1].Content
		switch modeltest.Turn(chat) {
		case 0:
			return modeltest.Code("documents")
		case 1:
			if !strings.Contains(told, "['2026/orders.csv', 'picture.bin']") {
				t.Errorf("the documents are %s", told)
			}
			return modeltest.Code("text = read_document('orders.csv')")
		case 2: // the name was wrong
			if !strings.Contains(told, "the variable documents lists them") {
				t.Errorf("a wrong name: %s", told)
			}
			return modeltest.Code(`for name in ["link", "../secret", ".env", "/etc/passwd", "picture.bin"]:
    try:
        print("READ", read_document(name))
    except Exception as error:
        print(error)`)
		case 3:
			if strings.Contains(told, "READ") || !strings.Contains(told, "is not text") {
				t.Errorf("what is not to be had: %s", told)
			}
			return "First I group, then I compare.\n" + modeltest.Code(`import collections
totals = collections.Counter()
for line in read_document("2026/orders.csv").splitlines()[1:]:
    customer, amount = line.split(",")
    totals[customer] += int(amount)`) + modeltest.Code("final_answer(totals.most_common(1)[0])")
		}
		t.Errorf("one question too many: %s", told)
		return ""
	})
	var shown bytes.Buffer
	if err := j.run(t.Context(), &shown, model); err != nil {
		t.Fatalf("%v\n%s", err, shown.String())
	}
	for _, part := range []string{"--- step 4\n", "4 steps, 1 errors, 8 calls of tools, 400 tokens", "\n=> [ada 37]\n"} {
		if !strings.Contains(shown.String(), part) {
			t.Errorf("no %q in what it shows:\n%s", part, shown.String())
		}
	}
	lines, err := os.ReadFile(audit)
	must.Do(t, err)
	type end struct {
		Event, Prompt, Status string
		Tokens                int
	}
	var last end
	all := bytes.Split(bytes.TrimSpace(lines), []byte("\n"))
	must.Do(t, json.Unmarshal(all[len(all)-1], &last))
	if want := (end{Event: "end", Prompt: j.task, Status: "success", Tokens: 400}); last != want {
		t.Errorf("the audit ends with %+v, want %+v", last, want)
	}
	if strings.Contains(shown.String()+string(lines), key) {
		t.Error("the key was shown or is in the audit")
	}
}

// TestLocal checks that the example with -local needs only a model.
func TestLocal(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	model := modeltest.New(t, key, func([]loop.Message) string { return modeltest.Code("final_answer(6 * 7)") })
	var shown strings.Builder
	if err := (job{task: "Six times seven?", local: true}).run(t.Context(), &shown, model); err != nil || !strings.HasSuffix(shown.String(), "\n=> 42\n") {
		t.Errorf("%v\n%s", err, shown.String())
	}
}

// Without a model the scripted one solves the example's own task.
func TestScript(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	var shown strings.Builder
	j, model := job{local: true, steps: 5}, &loop.Model{}
	must.Do(t, j.script(&shown, model))
	if err := j.run(t.Context(), &shown, model); err != nil || !strings.HasSuffix(shown.String(), "\n=> 354224848179261915075\n") {
		t.Errorf("%v\n%s", err, shown.String())
	}
	if !strings.HasPrefix(shown.String(), "no model is set") {
		t.Errorf("it does not say that the model is scripted:\n%s", shown.String())
	}
	own := job{task: "x", local: true}
	if err := own.script(&shown, &loop.Model{}); err == nil {
		t.Error("a task of one's own without a model was no error")
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for want, j := range map[string]job{
		"which task": {local: true},
		"nowhere":    {task: "x", local: true, documents: "nowhere"},
	} {
		if err := j.run(t.Context(), t.Output(), &loop.Model{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
}
