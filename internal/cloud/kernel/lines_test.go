//go:build linux

package kernel

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestFormsOfLines checks which lines are messages. A line of output is read faster if it has exactly
// the driver's form, and the same way if it has not.
func TestFormsOfLines(t *testing.T) {
	t.Parallel()
	const output = `{"name":"stdout","text":"a"}`
	for line, want := range map[string]link.Message{
		`{"type":"stream","content":` + output + "}\n":  {Type: "stream", Content: json.RawMessage(output)},
		`{"type":"stream","content": ` + output + "}\n": {Type: "stream", Content: json.RawMessage(output)},
		`{"type":"stream","content":` + output + "}":    {Type: "stream", Content: json.RawMessage(output)},
		`{"content":` + output + `,"type":"stream"}`:    {Type: "stream", Content: json.RawMessage(output)},
		`{"type":"reply","content":{}}` + "\n":          {Type: "reply", Content: json.RawMessage("{}")},
		`{"type":"stream","content":[]}` + "\n":         {}, `{"type":"reply","content":1}`: {}, `{"type":"reply"}`: {}, `{"content":{}}`: {},
		`{"type":"stream","content":{}`: {}, `{"type":"stream","content":` + output + "}}\n": {}, "": {}, "\n": {}, "null": {},
	} {
		got, err := parseLine([]byte(line))
		switch {
		case want.Type == "" && (got != nil || !errors.Is(err, errLine)):
			t.Errorf("%q: got %+v and error %v, want that it is malformed", line, got, err)
		case want.Type != "" && (err != nil || got.Type != want.Type || !bytes.Equal(bytes.TrimSpace(got.Content), want.Content)):
			t.Errorf("%q: got %+v and error %v, want %+v", line, got, err, want)
		}
	}
	for open, want := range map[string]string{`{"comm_id":"c"}`: "c", `{"comm_id":1}`: "", `[]`: ""} {
		var got struct {
			ID   *string         `json:"comm_id"`
			Data json.RawMessage `json:"data"`
		}
		must.Do(t, json.Unmarshal(refuseComm(json.RawMessage(open)), &got))
		if got.ID == nil || *got.ID != want || string(got.Data) != "{}" {
			t.Errorf("%s: got %+v, want the id %q and no data", open, got, want)
		}
	}
}

// TestFittingEnvironments checks which variables make a forked process differ from one that is started.
func TestFittingEnvironments(t *testing.T) {
	t.Parallel()
	w := &Warm{Environ: []string{"A=1", "LANG=C", "PYTHONPATH=/x"}}
	for environ, want := range map[string]bool{
		"PYTHONPATH=/x LANG=C B=2": true, "LANG=C PYTHONPATH=/x PATH=/bin HOME=/h MY_PYTHON=1": true, "LANG=C": false, "LANG=D PYTHONPATH=/x": false,
		"LANG=C PYTHONPATH=/x LD_PRELOAD=x": false, "LANG=C PYTHONPATH=/x MPLBACKEND=agg": false, "LANG=C PYTHONPATH=/x OMP_NUM_THREADS=1": false, "": false,
	} {
		if got := w.fits(strings.Fields(environ)); got != want {
			t.Errorf("%s: got %v, want %v", environ, got, want)
		}
	}
}

// logged is a log in memory.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// TestLogOfAKernel checks the lines that the operator of a server reads about a kernel.
func TestLogOfAKernel(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on this machine: the driver is not run")
	}
	var log logged
	k := newKernel(t, python)
	k.spec.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := attach(t, k)
	if o := s.run("1"); len(o.errors) > 0 {
		t.Fatalf("got %+v", o)
	}
	must.Do(t, k.Restart(patience.Context(t)))
	info, err := k.Start(patience.Context(t))
	must.Do(t, err)
	s.run("import os\nos.write(2, b'last words')\nos._exit(3)")
	for line, want := range map[string]bool{
		`level=INFO msg="kernel started" program=`: true, `level=INFO msg="code ended" took=`: true, `level=INFO msg="kernel is restarted by request"`: true,
		`level=WARN msg="kernel died" error="exit status 3" stderr=`: true, `level=WARN msg="kernel without IPython" note=`: info.Note != "", "level=ERROR": false,
	} {
		if !want && log.has(line) {
			t.Errorf("the log has %s", line)
		}
		if want {
			patience.Until(t, "the log has "+line, func() bool { return log.has(line) })
		}
	}
}
