package doctor

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestCheckPython checks the report about a Python with all modules, with few of them, and about one that does not run.
func TestCheckPython(t *testing.T) {
	fresh(t)
	python := filepath.Join(t.TempDir(), "python3")
	t.Setenv("E2BCTL_PYTHON", python)
	describe := func(modules string) {
		t.Helper()
		const about = `{"executable":%q,"real":"/usr/bin/python3","base":%[1]q,"prefixes":["/usr"],"version":[3,13,1],"modules":[%s]}`
		must.Do(t, os.WriteFile(python, fmt.Appendf(nil, "#!/bin/sh\necho '"+about+"'\n", python, modules), 0o755))
	}
	describe(`"IPython","numpy","pandas","matplotlib","PIL","requests","jinja2","nbformat","nest_asyncio"`)
	detail := ", Python 3.13.1 at " + python
	if got := checkPython(t.Context()); got != (check{"python", checkOK, "ipython" + detail, ""}) {
		t.Errorf("with all modules: got %+v", got)
	}
	describe("")
	if got := checkPython(t.Context()); got.Status != checkWarning || got.Detail != "plain"+detail || !strings.Contains(got.Hint, " lacks IPython, numpy, ") {
		t.Errorf("without modules: got %+v", got)
	}
	must.Do(t, os.WriteFile(python, []byte("#!/bin/sh\nexit 7\n"), 0o755))
	if got := checkPython(t.Context()); got.Name != "python" || got.Status != checkFailed || !strings.Contains(got.Detail, "exit status 7") || got.Hint != "" {
		t.Errorf("one that does not run: got %+v", got)
	}
}

// TestLimits checks the texts about the limits of a sandbox, and that a sandbox that does not answer is an error.
func TestLimits(t *testing.T) {
	t.Parallel()
	daemon, info := &cluster{}, ""
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(daemon))
	mux.HandleFunc("GET /sandboxes/i1", func(w http.ResponseWriter, _ *http.Request) {
		if info == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, info)
	})
	sb := cmdtest.Sandbox(t, mux)
	const started = `{"sandboxID":"i1","templateID":"t","envdVersion":"0.6.13","state":"running",`
	for _, tt := range []struct {
		info    string
		refuses error
		want    limits
		fails   string
	}{
		{started + `"cpuCount":1,"memoryMB":512,"diskSizeMB":1024}`, nil, limits{"512 MiB", "1 processor", "77 processes and threads", "1024 MiB"}, ""},
		{started + `"cpuCount":2,"memoryMB":0,"diskSizeMB":1}`, nil, limits{"0 MiB", "2 processors", "77 processes and threads", "1 MiB"}, ""},
		{started + `"cpuCount":2,"memoryMB":1,"diskSizeMB":1}`, errors.New("no shell"), limits{"1 MiB", "2 processors", "", "1 MiB"}, "no shell"},
		{"", nil, limits{}, "503"},
	} {
		info, daemon.refuses = tt.info, tt.refuses
		var got limits
		err := got.read(t.Context(), sb)
		if got != tt.want || (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%s: got %+v, %v, want %+v, %s", tt.info, got, err, tt.want, tt.fails)
		}
	}
}
