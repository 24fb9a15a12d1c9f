package local

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// TestStatusOf checks that the status has all that the record of a cloud has, and the numbers of its sandboxes, which are
// missing if the cloud does not answer.
func TestStatusOf(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	for status, want := range map[int]string{http.StatusOK: "", http.StatusForbidden: "process 42, does not answer: "} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			if states := r.URL.Query().Get("state"); states != "running,paused" {
				t.Errorf("asked for the states %q", states)
			}
			_, _ = io.WriteString(w, `[{"sandboxID":"a","state":"paused"},{"sandboxID":"b","state":"running"},{"sandboxID":"c","state":"running"}]`)
		}))
		record := localcloud.Record{
			URL: server.URL, Key: "e2b_" + strings.Repeat("0", 40), Domain: "d:1", State: "/s", Engine: "e", Isolation: "i", PID: 42, Since: since, Log: "/l",
			IsolationNote: "n", Ask: true, NotEnforced: []string{"memory"}, LimitNotes: []string{"x"}, PythonNote: "p", StateNotes: []string{"q", "r"},
		}
		got, err := statusOf(t.Context(), record)
		server.Close()
		if (err == nil) != (want == "") || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%d: got error %v, want %q", status, err, want)
		}
		view := statusView{
			URL: record.URL, Domain: "d:1", StateDir: "/s", Engine: "e", Isolation: "i", PID: 42, Since: since, Log: "/l", IsolationNote: "n", Ask: true,
			NotEnforced: []string{"memory"}, Notes: []string{"p", "q", "r"},
		}
		if status == http.StatusOK {
			view.Running, view.Paused = new(2), new(1)
		}
		if diff := cmp.Diff(view, got); diff != "" {
			t.Errorf("%d (-want +got):\n%s", status, diff)
		}
	}
	got, err := statusOf(t.Context(), localcloud.Record{URL: "no address"})
	if err == nil || cmp.Diff(statusView{URL: "no address", NotEnforced: []string{}, Notes: []string{}}, got) != "" {
		t.Errorf("no address: got %+v and error %v", got, err)
	}
}

// TestStatusIsWritten checks each line of a status, in each format, and that one that cannot be written is an error.
func TestStatusIsWritten(t *testing.T) {
	t.Parallel()
	full := statusView{
		URL: "http://a", PID: 42, Engine: "e", Isolation: "i", IsolationNote: "n", Running: new(2), Paused: new(1), StateDir: "/s", Log: "/l", Ask: true,
		NotEnforced: []string{"memory: x", "disk: y"}, Notes: []string{"p"},
	}
	bare := statusView{URL: "http://b", PID: 43, Running: new(0)}
	lines := func(text string) (all []string) {
		for line := range strings.Lines(text) {
			all = append(all, strings.Join(strings.Fields(line), " "))
		}
		return all
	}
	for args, want := range map[string][]string{
		"": {
			"FIELD VALUE", "URL http://a", "Process 42", "Since -", "Engine e", "Isolation i", "Sandboxes 2 running, 1 paused", "State /s", "Log /l",
			"Hosts its terminal asks before one is reached", "Less isolated n", "Not enforced memory: x", "Not enforced disk: y", "Note p", "",
			"FIELD VALUE", "URL http://b", "Process 43", "Since -", "Engine -", "Isolation -", "Sandboxes unknown", "State none: nothing outlives it", "Log none: it runs in the foreground",
		},
		"-q": {"http://a", "http://b"},
	} {
		var out strings.Builder
		f := factory(t, &out, strings.Fields(args)...)
		must.Do(t, writeStatus(f, []statusView{full, bare}))
		if diff := cmp.Diff(want, lines(out.String())); diff != "" {
			t.Errorf("%q (-want +got):\n%s", args, diff)
		}
		for n := range 3 {
			w := &fullAfter{n: n}
			err := writeStatus(factory(t, w, strings.Fields(args)...), []statusView{full, bare})
			if n < min(2, w.written) && !errors.Is(err, errFull) {
				t.Errorf("%q, full after %d writes: got error %v, want %v", args, n, err, errFull)
			}
		}
	}
	var out strings.Builder
	must.Do(t, writeStatus(factory(t, &out, "-o", "json"), []statusView{bare}))
	if got := out.String(); !strings.Contains(got, `"paused": null`) || !strings.Contains(got, `"running": 0`) || strings.Contains(got, "apiKey") {
		t.Errorf("got %s", got)
	}
}

var errFull = errors.New("the disk is full")

// fullAfter is a disk that is full after n writes.
type fullAfter struct{ n, written int }

func (w *fullAfter) Write(p []byte) (int, error) {
	if w.written++; w.written > w.n {
		return 0, errFull
	}
	return len(p), nil
}

// factory returns the factory of a command with these flags.
func factory(t *testing.T, out io.Writer, flags ...string) *cmdutil.Factory {
	t.Helper()
	f := cmdutil.NewFactory(cmdutil.NewIOStreams(nil, out, io.Discard), nil)
	cmd := &cobra.Command{Use: "e2bctl"}
	f.AddFlags(cmd)
	must.Do(t, cmd.ParseFlags(flags))
	return f
}

// TestNotEnforced checks which limits count as not enforced.
func TestNotEnforced(t *testing.T) {
	t.Parallel()
	got := notEnforced(local.Report{Memory: "not enforced: no cgroup", CPU: "cgroup", Processes: "not enforced", Disk: "not enforced: x"})
	if diff := cmp.Diff([]string{"memory: no cgroup", "processes", "disk: x"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := notEnforced(local.Report{Memory: "it is not enforced"}); got != nil {
		t.Errorf("got %q, want none", got)
	}
}
