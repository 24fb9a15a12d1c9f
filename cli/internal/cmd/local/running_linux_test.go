package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// recordVariable makes this binary a local cloud. Its value is the record of that cloud.
const recordVariable = "LOCAL_TEST_RECORD"

// TestMain lets this binary be the local cloud of another process, because a process cannot see the lock that it holds
// itself.
func TestMain(m *testing.M) {
	text := os.Getenv(recordVariable)
	if text == "" {
		m.Run()
		return
	}
	if err := beCloud(text); err != nil {
		localcloud.TellFailure(os.Stdout, err.Error())
	}
}

// beCloud has the place of a local cloud until a signal arrives, or its test must have ended. The variables in its record are its
// arguments.
func beCloud(text string) error {
	var record localcloud.Record
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return err
	}
	if record.URL == "" {
		return errors.New("it has no address")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 2*patience.Limit)
	defer cancel()
	place, err := localcloud.FindFree(ctx, record.State)
	if err != nil {
		return err
	}
	release, err := place.Claim()
	if err != nil {
		return err
	}
	defer release()
	record.Env = []string{"E2B_API_KEY=" + record.Key, "ARGS=" + strings.Join(os.Args[1:], " ")}
	if err := place.Publish(record); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(record); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// call is a command line of e2bctl local, with its output.
type call struct {
	line      string // its words have no blanks
	terminal  string // the line that is typed on its terminal; "": it has no terminal
	out, errs string
	err       string
}

// names are the texts that vary, each behind the name that stands for it.
type names []string

// expand returns a text with the texts that vary in place of their names.
func (n names) expand(text string) string { return strings.NewReplacer(n...).Replace(text) }

// steady returns a text with the names in place of the texts that vary.
func (n names) steady(text string) string {
	var back []string
	for i := 0; i < len(n); i += 2 {
		back = append(back, n[i+1], n[i])
	}
	text = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`).ReplaceAllString(strings.NewReplacer(back...).Replace(text), "TIME")
	return regexp.MustCompile(`"bytes": \d{7}`).ReplaceAllString(text, `"bytes": MANY`)
}

// run runs the command line, and returns it with its output.
func (c call) run(ctx context.Context, n names) call {
	var out, errs cmdtest.Output
	ios := cmdutil.NewIOStreams(strings.NewReader(c.terminal), &out, &errs)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if strings.HasPrefix(c.line, "up ") {
		out.Seen = cancel // one that runs here by mistake ends when it is ready
	}
	ios.InIsTerminal, ios.OutIsTerminal, ios.ErrIsTerminal = c.terminal != "", c.terminal != "", c.terminal != ""
	commands := func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdLocal(f)} }
	err := cmdtest.ExecuteContext(ctx, ios, commands, strings.Fields("local "+n.expand(c.line))...)
	got := call{line: c.line, terminal: c.terminal, out: n.steady(out.String()), errs: n.steady(errs.String())}
	if err != nil {
		got.err = n.steady(err.Error())
	}
	return got
}

// check runs command lines one after the other, and compares their output. They must leave no connection open.
func check(t *testing.T, n names, calls ...call) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	defer func() {
		if leaks := goleak.Find(before); leaks != nil {
			t.Errorf("a command has left something behind: %v", leaks)
		}
	}()
	for _, want := range calls {
		if diff := cmp.Diff(want, want.run(t.Context(), n), cmp.AllowUnexported(call{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.line, diff)
		}
	}
}

// start starts a local cloud of another process with a record, and with more arguments. It ends with the test.
func start(t *testing.T, n names, record localcloud.Record, args string) call {
	t.Helper()
	text, err := json.Marshal(record)
	must.Do(t, err)
	t.Setenv(recordVariable, string(text))
	t.Cleanup(func() {
		place, err := localcloud.FindFor(record.State)
		must.Do(t, err)
		_, err = place.End(context.Background())
		must.Do(t, err)
	})
	return call{line: strings.TrimSpace("up --background " + args)}.run(patience.Context(t), n)
}

// service is the service of a local cloud with two running sandboxes and the paused one a.
func service(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /local/space", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"layers":{"count":1,"bytes":2},"cache":{"count":3,"bytes":4},"uploads":{"count":5,"bytes":6}}`)
	})
	mux.HandleFunc("GET /v2/sandboxes", func(w http.ResponseWriter, r *http.Request) {
		all := `{"sandboxID":"a","state":"paused","endAt":"2026-11-22T10:00:00Z"}`
		if r.URL.Query().Get("state") != "paused" {
			all += `,{"sandboxID":"r","state":"running"},{"sandboxID":"s","state":"running"}`
		}
		fmt.Fprint(w, "["+all+"]")
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// TestRunning checks the commands about a local cloud that runs.
func TestRunning(t *testing.T) {
	home := fresh(t)
	server, state, log := service(t), keep(t, "a", "b"), filepath.Join(home, "log")
	must.Do(t, os.WriteFile(log, []byte("one\ntwo\n"), 0o600))
	n := names{"STATE", state, "HOME", home, "URL", server.URL, "KEY", "e2b_" + strings.Repeat("0", 40)}
	record := localcloud.Record{
		URL: server.URL, Key: n[7], Domain: "d.test:1", State: state, Engine: "room", Isolation: "full", IsolationNote: "weak", PID: 42, Log: log,
		Since: time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC), LimitNotes: []string{"memory"}, PythonNote: "old", StateNotes: []string{"damaged"},
	}
	const (
		args   = "local up --output json --port 7 --log HOME/e2bctl/local/cloud.log --domain d.test --state-dir STATE --engine room --idle 1h0m0s --memory 1GiB"
		shown  = "export E2B_API_KEY=KEY\nexport ARGS='" + args + "'\n"
		notes  = "isolation: weak\nits limits: memory\nits Python: old\nits state: damaged\n"
		ends   = "URL, engine: room, isolation: full; e2bctl local down --state-dir STATE ends it; log: HOME/log\n" + notes
		status = "FIELD           VALUE\nURL             URL\nProcess         42\nSince           TIME\nEngine          room\nIsolation       full\n" +
			"Sandboxes       2 running, 1 paused\nState           STATE\nLog             HOME/log\nLess isolated   weak\nNote            old\nNote            damaged\n"
		conflict = "a local cloud already runs at URL, domain d.test:1, with the state directory STATE; end it with e2bctl local down, " +
			"or start one beside it with a --state-dir and a --port of its own"
		kept = "ID   PAUSED                 SIZE\na    TIME   1 MiB\n\n" +
			"BESIDES                                        COUNT   SIZE\nlayers of snapshots, templates and sandboxes   1       1 KiB\n" +
			"cached steps of builds                         3       1 KiB\narchives of builds                             5       1 KiB\n"
		lost = "This ends the local cloud on URL with its sandboxes.\nThis removes from STATE:\n  2 paused sandboxes, 2 MiB\n" +
			"  0 layers of snapshots and templates, 0 KiB\n  0 archives of builds, 0 KiB\n  0 volumes, 0 KiB\n  all secrets, API keys, and the cloud's own key\nRemove all of this? [y/N] "
	)
	first := start(t, n, record, "--port 7 --domain d.test --state-dir STATE --engine room --idle 1h --memory 1GiB")
	if first.err != "" || first.out != shown || first.errs != "local cloud on "+ends {
		t.Fatalf("it starts: got %+v", first)
	}
	check(t, n,
		call{line: "up --background --state-dir STATE", out: shown, errs: "the local cloud already runs on " + ends},
		call{line: "up --background -q", out: shown},
		call{line: "up --background --state-dir HOME", err: conflict},
		call{line: "up --background --port 9", err: conflict},
		call{line: "up --background --memory 2GiB", err: conflict},
		call{line: "status", out: status},
		call{line: "status -q", out: "URL\n"},
		call{line: "env", out: shown},
		call{line: "env --state-dir STATE -o json", out: "{\n  \"ARGS\": \"" + args + "\",\n  \"E2B_API_KEY\": \"KEY\"\n}\n"},
		call{line: "env --state-dir HOME", err: "HOME: " + localcloud.ErrNone.Error()},
		call{line: "ask ls", terminal: "\n", errs: "No hosts are always allowed in STATE.\n"},
		call{line: "ask ls -o json", terminal: "\n", out: "[]\n"},
		call{line: "logs", out: "one\ntwo\n"},
		call{line: "logs -n 1", out: "two\n"},
		call{line: "prune", out: kept},
		call{line: "prune b", err: "no paused sandbox b is kept in STATE"},
		call{line: "reset", terminal: "n\n", errs: lost, err: "not confirmed, nothing was done"},
		call{line: "down --state-dir HOME", errs: "no local cloud is running with the state directory HOME\n"},
		call{line: "ask forget a.test:1", err: "\"a.test:1\" is not among the hosts that are always allowed in STATE"},
		call{line: "down", errs: "2 paused sandboxes are kept, 2 MiB, in STATE; the next e2bctl local up has what is kept, e2bctl local prune removes it\n"},
		call{line: "down", errs: "no local cloud is running\n"},
		call{line: "env --state-dir HOME", err: localcloud.ErrNone.Error()},
	)
}

// TestRunningInActions checks that the key of a local cloud is masked in the log of a job before it is printed.
func TestRunningInActions(t *testing.T) {
	home := fresh(t)
	n := names{"HOME", home}
	record := localcloud.Record{URL: "http://a", Key: "secret", Engine: "room", Isolation: "full"}
	const shown = "export E2B_API_KEY=secret\nexport ARGS='local up --output json --port 0 --log HOME/e2bctl/local/cloud.log --ephemeral'\n"
	started := start(t, n, record, "--ephemeral")
	if want := "local cloud on http://a, engine: room, isolation: full; e2bctl local down ends it\n"; started.errs != want || started.out != shown {
		t.Errorf("it starts: got %+v, want %q", started, want)
	}
	t.Setenv("GITHUB_ACTIONS", "true")
	for _, line := range []string{"env --annotate", "up --annotate --background -q"} {
		if got := (call{line: line}).run(t.Context(), n); got.errs != "::add-mask::secret\n" || got.out != shown {
			t.Errorf("%s: got %+v", line, got)
		}
	}
}

// TestRunningBeside checks the commands about a local cloud that runs beside the first one, and that each is ended alone.
func TestRunningBeside(t *testing.T) {
	home := fresh(t)
	server, state, one := service(t), keep(t, "a", "b"), keep(t, "a")
	n := names{"STATE", state, "ONE", one, "HOME", home, "URL", server.URL}
	first := localcloud.Record{URL: "http://first.invalid", PID: 41, Engine: "room", Isolation: "full", State: one}
	second := localcloud.Record{URL: server.URL, PID: 42, State: state, Engine: "wasm", Isolation: "full"}
	const (
		beside = "another one runs on URL; e2bctl local down --state-dir STATE ends it\n"
		kept   = "1 paused sandbox is kept, 1 MiB, in ONE; the next e2bctl local up has what is kept, e2bctl local prune removes it\n"
		ended  = "{\n  \"ended\": true,\n  \"stateDir\": \"STATE\",\n  \"kept\": [\n    {\n      \"sandboxID\": \"a\",\n      \"pausedAt\": \"TIME\",\n      \"bytes\": MANY\n    },\n" +
			"    {\n      \"sandboxID\": \"b\",\n      \"pausedAt\": \"TIME\",\n      \"bytes\": MANY\n    }\n  ]\n}\n"
	)
	restart := func(record localcloud.Record, args string) {
		t.Helper()
		if got := start(t, n, record, args); got.err != "" {
			t.Fatalf("it starts: got %+v", got)
		}
	}
	restart(first, "--state-dir ONE")
	restart(second, "--state-dir STATE --port 8")
	check(t, n,
		call{line: "env --state-dir ONE", out: (call{line: "env"}).run(t.Context(), n).out},
		call{line: "down -q --state-dir ONE"},
		call{line: "down", errs: "no local cloud is running\n" + beside},
		call{line: "down -q"},
		call{line: "down --state-dir STATE -o json", out: ended},
		call{line: "down --state-dir STATE -o json", out: "{\n  \"ended\": false,\n  \"kept\": []\n}\n"},
	)
	restart(first, "--state-dir ONE")
	restart(second, "--state-dir STATE --port 8")
	const silent = "the local cloud on http://first.invalid, process 41, does not answer: "
	if got := (call{line: "status -q"}).run(t.Context(), n); got.out != "http://first.invalid\nURL\n" || !strings.HasPrefix(got.err, silent) {
		t.Errorf("the status of both: got %+v", got)
	}
	must.Do(t, os.WriteFile(filepath.Join(published(t, home, server.URL)[0]), []byte("{"), 0o600))
	check(t, n,
		call{line: "down --state-dir ONE", errs: kept},
		call{line: "down --state-dir STATE"}, // although its record is damaged
		call{line: "down --state-dir STATE", errs: "no local cloud is running with the state directory STATE\n"},
	)
}

// TestRunningWithDamage checks the commands about a local cloud whose record or state directory cannot be read.
func TestRunningWithDamage(t *testing.T) {
	home := fresh(t)
	file := filepath.Join(home, "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	n := names{"HOME", home}
	record := localcloud.Record{URL: "http://a.invalid", State: file, Log: file}
	start(t, n, record, "")
	damaged := published(t, home, record.URL)
	for _, line := range []string{"prune", "reset --yes"} {
		if got := (call{line: line}).run(t.Context(), n); !strings.Contains(got.err, "HOME/file") {
			t.Errorf("%s: got %+v, want an error of the state directory", line, got)
		}
	}
	must.Do(t, os.WriteFile(damaged[0], []byte("{"), 0o600))
	for _, line := range []string{"status", "env", "logs", "ask ls", "ask forget a.test", "prune", "reset --yes", "up --background"} {
		got := call{line: line}.run(t.Context(), n)
		if got.out != "" || !strings.HasPrefix(got.err, "HOME/e2bctl/local/cloud.json is damaged: ") || strings.Contains(got.err, "no local cloud") {
			t.Errorf("%s: got %+v, want that the record is damaged", line, got)
		}
	}
	check(t, n, call{line: "down"})
	start(t, n, record, "")
	if got := (call{line: "down"}).run(t.Context(), n); !strings.HasPrefix(got.err, "the local cloud has ended, and its state directory cannot be read: ") || got.errs != "" {
		t.Errorf("down: got %+v", got)
	}
	for log, want := range map[string]string{"HOME/none": "no local cloud has run in the background", "HOME/file/x": "open HOME/file/x: not a directory", "HOME": "reading HOME: "} {
		start(t, n, localcloud.Record{URL: "http://a.invalid", Log: n.expand(log)}, "")
		if got := (call{line: "logs -n 1"}).run(t.Context(), n); !strings.HasPrefix(got.err, want) || got.out != "" {
			t.Errorf("the log %s: got %+v, want %s", log, got, want)
		}
		check(t, n, call{line: "down"})
	}
	if got := start(t, n, localcloud.Record{}, ""); got.err != "starting a local cloud in the background: it has no address" || got.out != "" {
		t.Errorf("one that does not start: got %+v", got)
	}
}

// TestForgottenHosts checks the list of the hosts that are always allowed, and the removal of hosts from it.
func TestForgottenHosts(t *testing.T) {
	fresh(t)
	n := names{"STATE", t.TempDir()}
	for _, host := range []string{"a.test:443", "a.test:80", "b.test:1"} {
		must.Do(t, localcloud.AllowHost(n[1], host))
	}
	const json = "[\n  {\n    \"address\": \"b.test:1\",\n    \"host\": \"b.test\",\n    \"port\": 1\n  }\n]\n"
	check(t, n,
		call{line: "ask ls --state-dir STATE", terminal: "\n", out: "a.test:443\na.test:80\nb.test:1\n"},
		call{line: "ask forget --state-dir STATE A.Test:443", out: "a.test:443\n"},
		call{line: "ask forget --state-dir STATE A.TEST", out: "a.test:80\n"},
		call{line: "ask ls --state-dir STATE -o json", out: json},
		call{line: "ask forget --state-dir STATE b.test -o json", out: json},
		call{line: "ask ls --state-dir STATE", terminal: "\n", errs: "No hosts are always allowed in STATE.\n"},
	)
}

// TestResetOfTheRunning checks that a reset ends the local cloud, removes what its state directory keeps, and says how much
// that was.
func TestResetOfTheRunning(t *testing.T) {
	home, state := fresh(t), keep(t, "a", "b")
	n := names{"STATE", state, "HOME", home}
	s, err := store.Open(t.Context(), state)
	must.Do(t, err)
	for i, table := range []store.Table{store.Layers, store.Uploads, store.Uploads, store.Volumes, store.Volumes, store.Volumes} {
		files, err := s.NewDir()
		must.Do(t, err)
		must.Do(t, os.WriteFile(filepath.Join(files, "f"), make([]byte, 4096<<i), 0o600))
		_, err = s.Put(table, fmt.Sprint("x", i), []byte("{}"), files)
		must.Do(t, err)
	}
	if got := (call{line: "reset --yes --state-dir STATE"}).run(t.Context(), n); !strings.Contains(got.err, "STATE") || got.errs != "" {
		t.Errorf("in use: got %+v, want a conflict", got)
	}
	must.Do(t, s.Close())
	survey := func() localcloud.State {
		t.Helper()
		found, err := localcloud.Survey(t.Context(), state)
		must.Do(t, err)
		return found
	}
	before := survey()
	want := resetView{
		Ended: true, StateDir: state, Sandboxes: localcloud.Taken{Count: 2, Bytes: localcloud.Bytes(before.Kept)},
		Layers: before.Space.Layers, Uploads: before.Space.Uploads, Volumes: volumesOf(before),
	}
	if want.Layers.Count != 1 || want.Uploads.Count != 2 || want.Volumes.Count != 3 || want.Volumes.Bytes < 4096<<5 {
		t.Fatalf("before it, there is %+v", want)
	}
	start(t, n, localcloud.Record{URL: "http://a.invalid", State: state}, "")
	declined := call{line: "reset", terminal: "n\n"}.run(t.Context(), n)
	if diff := cmp.Diff(before, survey()); diff != "" || !strings.Contains(declined.errs, "\n  3 volumes, ") {
		t.Errorf("declined: said %q, and the state (-before +after):\n%s", declined.errs, diff)
	}
	text, err := json.MarshalIndent(want, "", "  ")
	must.Do(t, err)
	check(t, n, call{line: "reset --yes -o json", out: n.steady(string(text)) + "\n"})
	if after := survey(); len(after.Kept)+after.Volumes.Count+after.Space.Layers.Count+after.Space.Uploads.Count > 0 {
		t.Errorf("after it, there is %+v", after)
	}
	check(t, n, call{line: "status", err: "no local cloud is running"}, call{line: "reset --yes -q --state-dir STATE"})
}

// TestFollowedLog checks that the log of a local cloud is followed until that cloud has ended, or until its reader has.
func TestFollowedLog(t *testing.T) {
	home := fresh(t)
	log := filepath.Join(home, "log")
	must.Do(t, os.WriteFile(log, []byte("one\ntwo\n"), 0o600))
	record := localcloud.Record{URL: "http://a.invalid", Log: log, Since: time.Now()}
	start(t, nil, record, "")
	follow := func(ctx context.Context, out *cmdtest.Output) error {
		return logsRun(ctx, &logsOptions{IO: &cmdutil.IOStreams{Out: out}, Follow: true, Tail: 1})
	}
	ctx, cancel := context.WithCancelCause(patience.Context(t))
	out := &cmdtest.Output{Seen: func() { cancel(errFull) }}
	must.Is(t, follow(ctx, out), errFull)
	must.Is(t, follow(ctx, &cmdtest.Output{Err: io.ErrClosedPipe}), io.ErrClosedPipe)
	var all cmdtest.Output
	ended := make(chan error, 1)
	go func() { ended <- follow(patience.Context(t), &all) }()
	add := func(text string) {
		t.Helper()
		file, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
		must.Do(t, err)
		_, err = file.WriteString(text)
		must.Do(t, errors.Join(err, file.Close()))
	}
	patience.Until(t, "the last line is shown", func() bool { return all.String() == "two\n" })
	add("three\nfo")
	patience.Until(t, "the next line is shown", func() bool { return all.String() == "two\nthree\n" })
	add("ur")
	(call{line: "down"}).run(t.Context(), nil)
	must.Do(t, patience.Receive(t, "the end of the log", ended))
	if got := all.String(); got != "two\nthree\nfour\n" || out.String() != "two\n" {
		t.Errorf("got %q, and %q until the reader has ended", got, out)
	}
	if open := fdtest.Open(t, log); len(open) > 0 {
		t.Error("the log is still open")
	}
}
