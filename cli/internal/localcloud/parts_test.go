//go:build unix

package localcloud

import (
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestSettingsOfARunningCloud checks which settings a running cloud has, and which would need another.
func TestSettingsOfARunningCloud(t *testing.T) {
	t.Parallel()
	record := Record{URL: "http://127.0.0.1:3999", Domain: "cloud.test:3999", State: "/state", Engine: "room"}
	none := record
	none.State = ""
	for _, tt := range []struct {
		want Settings
		by   Record
		met  bool
	}{
		{Settings{}, record, true}, {Settings{Port: 3999}, record, true}, {Settings{Port: 399}, record, false}, {Settings{Port: 999}, record, false},
		{Settings{Domain: "cloud.test"}, record, true}, {Settings{Domain: "cloud.test:3999"}, record, false}, {Settings{Domain: "other.test"}, record, false},
		{Settings{State: "/state"}, record, true}, {Settings{State: "/other"}, record, false}, {Settings{State: "/state"}, none, false},
		{Settings{Ephemeral: true}, record, false}, {Settings{Ephemeral: true}, none, true},
		{Settings{Engine: "room"}, record, true}, {Settings{Engine: "wasm"}, record, false}, {Settings{Idle: time.Hour}, record, true}, {Settings{Flags: []string{"--ask"}}, record, false},
	} {
		if got := tt.want.metBy(tt.by); got != tt.met {
			t.Errorf("%+v by a cloud with the state %q: got %v, want %v", tt.want, tt.by.State, got, tt.met)
		}
	}
	for want, err := range map[string]error{
		"a local cloud is starting or ending; end it with ": &ConflictError{},
		"a local cloud already runs at http://127.0.0.1:3999, domain cloud.test:3999, with the state directory /state; end it with e2bctl local down": conflictWith(record),
		"another container's local cloud has /p, which this one shares; have TMPDIR name":                                                             &ConflictError{Elsewhere: "/p"},
		"\"h\" is not among the hosts that are always allowed in /d":                                                                                  &NotAllowedError{"/d", "h"},
		"no paused sandbox i1 is kept in /d":                                                                                                          &NotKeptError{"/d", "i1"},
		"no local cloud has run in the background; e2bctl local up --background":                                                                      &NoLogError{},
		"the local cloud on http://u runs in the foreground and has no log file":                                                                      &NoLogError{"http://u"},
	} {
		if !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %s, want %s", err, want)
		}
	}
	for _, err := range []error{&NotAllowedError{}, &NotKeptError{}, &NoLogError{}} {
		must.Is(t, err, fs.ErrNotExist)
	}
	inUse := &store.InUseError{}
	if conflict, ok := errors.AsType[*ConflictError](Conflict(inUse)); !ok || conflict.InUse != inUse || !strings.HasSuffix(conflict.Error(), " (--state-dir), or none (--ephemeral)") {
		t.Errorf("a directory in use is %v", Conflict(inUse))
	}
	if Conflict(nil) != nil || !errors.Is(Conflict(fs.ErrExist), fs.ErrExist) {
		t.Error("another error was changed")
	}
}

// TestSizes checks the units at their bounds, and the sum of sizes.
func TestSizes(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{0: "0 KiB", 1: "1 KiB", 1024: "1 KiB", 1025: "2 KiB", 1<<20 - 1: "1024 KiB", 1 << 20: "1 MiB", 10<<30 - 1: "10239 MiB", 10 << 30: "10 GiB"} {
		if got := Size(bytes); got != want {
			t.Errorf("%d: got %s, want %s", bytes, got, want)
		}
	}
	if got := Bytes([]Kept{{Bytes: 3}, {Bytes: 4}}); got != 7 {
		t.Errorf("got the sum %d, want 7", got)
	}
	var taken Taken
	taken.add(3)
	if taken.add(4); taken != (Taken{2, 7}) {
		t.Errorf("got %+v, want two items of 7 bytes", taken)
	}
}

// TestReasonOfAFailedStart checks the reason that a process in the background leaves.
func TestReasonOfAFailedStart(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "log")
	for text, want := range map[string]string{
		"":                                "it ended without saying why; see " + name,
		"some text\n":                     "it ended without saying why; see " + name,
		`{"error":{"message":""}}` + "\n": "it ended without saying why; see " + name,
		`{"error":{"message":"half"},"error":5}` + "\n":                                   "it ended without saying why; see " + name,
		"first\n" + `{"error":{"message":"local up: too many"}}` + "\n\n":                 "too many",
		strings.Repeat("x", 5000) + "\n" + `{"error":{"message":"the last line"}}` + "\n": "the last line",
	} {
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
		log, err := os.Open(name)
		must.Do(t, err)
		if got := failureIn(log); got != want {
			t.Errorf("%.40q: got %s, want %s", text, got, want)
		}
		must.Do(t, log.Close())
		if got := failureIn(log); !strings.Contains(got, "closed") {
			t.Errorf("of a closed file: got %s", got)
		}
	}
	must.Do(t, os.WriteFile(name, []byte("text"), 0o600))
	log, err := os.OpenFile(name, os.O_WRONLY, 0)
	must.Do(t, err)
	if got := failureIn(log); !strings.Contains(got, syscall.EBADF.Error()) {
		t.Errorf("of a file that cannot be read: got %s, want %v", got, syscall.EBADF)
	}
	must.Do(t, log.Close())
	var said bytes.Buffer
	if TellFailure(&said, "why"); said.String() != `{"error":{"message":"why"}}`+"\n" {
		t.Errorf("got %q", &said)
	}
}

// TestQuestionsToARunningCloud checks the requests about its space, and answers that are not as expected.
func TestQuestionsToARunningCloud(t *testing.T) {
	t.Parallel()
	status, body := http.StatusOK, `{"layers":{"count":1,"bytes":2},"cache":{"count":3,"bytes":4},"uploads":{"count":5,"bytes":6}}`
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.Path + " " + r.Header.Get("X-API-Key")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	record := Record{URL: server.URL, Key: "e2b_key"}
	space, err := record.Space(t.Context())
	if want := (Space{Taken{1, 2}, Taken{3, 4}, Taken{5, 6}}); err != nil || space != want || asked != "GET /local/space e2b_key" {
		t.Errorf("got %+v and error %v after %s", space, err, asked)
	}
	if err := record.EmptyCache(t.Context()); err != nil || asked != "DELETE /local/space/cache e2b_key" {
		t.Errorf("got error %v after %s", err, asked)
	}
	for _, tt := range []struct {
		status int
		body   string
		want   string
	}{{http.StatusOK, "{", "the answer is not the expected JSON"}, {http.StatusMultipleChoices, "{}", "one of another version"}, {http.StatusNotFound, "{}", "404 Not Found to GET /local/space"}} {
		status, body = tt.status, tt.body
		if _, err := record.Space(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d %s: got error %v, want %q", tt.status, tt.body, err, tt.want)
		}
	}
	if err := (Record{URL: "http://\x00"}).EmptyCache(t.Context()); err == nil || !strings.Contains(err.Error(), "invalid control character") {
		t.Errorf("got error %v of an address that is none", err)
	}
	server.Close()
	if _, err := record.Space(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "the local cloud: ") {
		t.Errorf("got error %v of a cloud that has ended", err)
	}
}

// TestEndlessAnswer checks that a question reads only part of an answer without an end, and then closes the connection.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var err error
		for err == nil {
			_, err = w.Write(make([]byte, 4096))
		}
		failed <- err
	}))
	defer server.Close()
	must.Do(t, Record{URL: server.URL}.EmptyCache(t.Context()))
	if err := patience.Receive(t, "the end of the connection", failed); err == nil {
		t.Error("got no error after the connection was closed")
	}
}

// TestStateDirectories checks what a directory keeps, what is removed from it, and that one in use is left alone.
func TestStateDirectories(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	state, err := Survey(t.Context(), dir)
	if err != nil || state.Dir != dir || len(state.Kept) > 0 {
		t.Errorf("a missing directory: got %+v and error %v", state, err)
	}
	must.Do(t, os.Mkdir(dir, 0o700))
	s, err := store.Open(t.Context(), dir)
	must.Do(t, err)
	for what, do := range map[string]func() error{
		"reset": func() error { return Reset(t.Context(), dir) }, "remove": func() error { return RemoveKept(t.Context(), dir, "i1") }, "empty": func() error { return EmptyCache(t.Context(), dir) },
	} {
		if conflict, ok := errors.AsType[*ConflictError](do()); !ok || conflict.InUse == nil {
			t.Errorf("%s of a directory in use: got %v", what, conflict)
		}
	}
	state, err = ReadState(t.Context(), dir)
	if err != nil || state.InUse == nil || state.Dir != dir {
		t.Errorf("of a directory in use: got %+v and error %v", state, err)
	}
	s.Wait()
	must.Do(t, s.Close())
	if state, err = ReadState(t.Context(), dir); err != nil || state.InUse != nil || state.Dir != dir {
		t.Errorf("got %+v and error %v", state, err)
	}
	err = RemoveKept(t.Context(), dir, "i1")
	if missing, ok := errors.AsType[*NotKeptError](err); !ok || *missing != (NotKeptError{dir, "i1"}) {
		t.Errorf("a missing sandbox: got error %v", err)
	}
	must.Do(t, EmptyCache(t.Context(), dir))
	must.Do(t, VerifyState(dir))
	must.Do(t, Reset(t.Context(), dir))
	must.Do(t, AllowHost(dir, "pypi.org:443"))
	must.Do(t, os.WriteFile(filepath.Join(dir, store.AllowedFile), []byte("{"), 0o600))
	for what, err := range map[string]error{"allow": AllowHost(dir, "a:1"), "forget": second(ForgetHost(dir, "a")), "list": second(AllowedHosts(dir))} {
		if err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%s with a damaged file: got error %v", what, err)
		}
	}
	must.Do(t, os.Remove(filepath.Join(dir, store.AllowedFile)))
	must.Do(t, os.Mkdir(filepath.Join(dir, store.AllowedFile), 0o700))
	must.Is(t, second(AllowedHosts(dir)), syscall.EISDIR)
	if err := writeWhole(filepath.Join(dir, "no", "file"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v", err)
	}
	must.Do(t, os.MkdirAll(filepath.Join(dir, "full", "x"), 0o700))
	if err := writeWhole(filepath.Join(dir, "full"), []byte("x")); err == nil {
		t.Error("a directory was replaced")
	}
	left, err := filepath.Glob(filepath.Join(dir, ".full-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
}

func second[T any](_ T, err error) error { return err }

// TestSpaceOfTheCache checks that only layers that nothing needs count for the cache, and that
// emptying the cache removes these, the steps and the uploads alone.
func TestSpaceOfTheCache(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	s, err := store.Open(t.Context(), dir)
	must.Do(t, err)
	put(t, s, store.Layers, "needed", "{}", "a")
	put(t, s, store.Layers, "cached", "{}", "b")
	put(t, s, store.Uploads, "upload", "{}", "c")
	put(t, s, store.Templates, "t1", `{"layer":"needed"}`, "")
	put(t, s, store.Cache, "step", `{"layer":"cached"}`, "")
	got, err := spaceOf(t.Context(), s)
	must.Do(t, err)
	if got.Layers.Count != 1 || got.Cache.Count != 1 || got.Uploads.Count != 1 {
		t.Errorf("got %+v, want one of each", got)
	}
	if got.Layers.Bytes <= 0 || got.Cache.Bytes <= 0 || got.Uploads.Bytes <= 0 {
		t.Errorf("got %+v, want bytes of each", got)
	}
	must.Do(t, closeState(s, nil))
	must.Do(t, EmptyCache(t.Context(), dir))
	left, err := surveySpace(t.Context(), dir)
	must.Do(t, err)
	if diff := cmp.Diff(Space{Layers: got.Layers}, left); diff != "" {
		t.Errorf("after the cache was emptied (-want +got):\n%s", diff)
	}
}

// TestPlacesBeside checks the places of clouds beside the user's, and the log of one that has ended.
func TestPlacesBeside(t *testing.T) {
	runtime := filepath.Join(t.TempDir(), "[") // no pattern
	must.Do(t, os.Mkdir(runtime, 0o700))
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	t.Setenv("TMPDIR", t.TempDir())
	place, err := Find()
	must.Do(t, err)
	own := place.beside("/state")
	if own == place || own == place.beside("/other") || own != place.beside("/state") {
		t.Errorf("got the places %v and %v", place, own)
	}
	if !own.Separate() || place.Separate() {
		t.Errorf("%v is separate, or %v is not", place, own)
	}
	for _, state := range []string{"", "/state"} {
		if got, err := FindFor(state); err != nil || got != place {
			t.Errorf("FindFor(%q): got %v and error %v, want %v", state, got, err, place)
		}
	}
	if got, err := FindFree(t.Context(), "/state"); err != nil || got != place {
		t.Errorf("FindFree: got %v and error %v, want %v", got, err, place)
	}
	if records, err := Running(); err != nil || len(records) > 0 {
		t.Errorf("got %v and error %v, want no running cloud", records, err)
	}
	for state, want := range map[string]Place{"": place, "/state": own} {
		path, ended, err := LogFile(state)
		if err != nil || path != want.logFile() || !ended() {
			t.Errorf("the log of %q: got %s and error %v", state, path, err)
		}
	}
	startOther(t, place, "LOCALCLOUD_TEST_PUBLISH=1")
	free, err := FindFree(t.Context(), "/state")
	if err != nil || free != own {
		t.Errorf("beside a running cloud: got %v and error %v, want %v", free, err, own)
	}
	must.Do(t, os.WriteFile(filepath.Join(own.dir, "left"), nil, 0o600))
	if free, err := FindFree(t.Context(), "/state"); err != nil || free != own {
		t.Errorf("beside a running cloud, for the second time: got %v and error %v, want %v", free, err, own)
	}
	if records, err := Running(); err != nil || len(records) != 1 {
		t.Errorf("with a place that no cloud uses: got %v and error %v, want one", records, err)
	}
	if free, err := FindFree(t.Context(), ""); err != nil || free != place {
		t.Errorf("with its own state: got %v and error %v, want %v", free, err, place)
	}
	if got, err := FindFor("/state"); err != nil || got != place {
		t.Errorf("before it runs: got %v and error %v", got, err)
	}
	startOther(t, own, "LOCALCLOUD_TEST_PUBLISH=1")
	for name, find := range map[string]func() (Place, error){
		"FindFor": func() (Place, error) { return FindFor("/state") }, "FindFree": func() (Place, error) { return FindFree(t.Context(), "/state") },
	} {
		if got, err := find(); err != nil || got != own {
			t.Errorf("%s while it runs: got %v and error %v, want %v", name, got, err, own)
		}
	}
	records, err := Running()
	if diff := cmp.Diff([]Record{testRecord, testRecord}, records); diff != "" || err != nil {
		t.Errorf("got error %v, records (-want +got):\n%s", err, diff)
	}
	if _, _, err := LogFile(""); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), testRecord.URL) {
		t.Errorf("of a cloud without a log: got error %v", err)
	}
}

// TestLogOfARunningCloud checks the log files of clouds that run, start or run with another state, and when they have ended.
// A cloud without a state that runs beside the user's is not taken for it.
func TestLogOfARunningCloud(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	place, err := Find()
	must.Do(t, err)
	startOther(t, place)
	record := Record{State: "/state", Log: "/var/log/cloud"}
	must.Do(t, place.Publish(record)) // in place of the other process
	own := place.beside("/other")
	var ended func() bool
	for _, state := range []string{"/other", "", "/state"} {
		want := record.Log
		if state == "/other" {
			want = own.logFile()
		}
		var path string
		if path, ended, err = LogFile(state); err != nil || path != want || ended() != (state == "/other") {
			t.Errorf("the log of %q: got %s and error %v, want %s, with an end only of the other", state, path, err, want)
		}
	}
	ephemeral, err := FindFree(t.Context(), "")
	if want := place.beside(""); err != nil || ephemeral != want {
		t.Errorf("beside a cloud with a state: got %v and error %v, want %v", ephemeral, err, want)
	}
	startOther(t, ephemeral)
	if got, err := FindFor(""); err != nil || got != place {
		t.Errorf("with a cloud without a state beside it: got %v and error %v, want %v", got, err, place)
	}
	record.Since = time.Unix(1, 0)
	if must.Do(t, place.Publish(record)); !ended() {
		t.Error("the log has not ended with the next cloud")
	}
	record.Since = time.Time{}
	if must.Do(t, place.Publish(record)); ended() {
		t.Error("the log of the same cloud has ended")
	}
	if must.Do(t, os.Remove(place.recordFile())); !ended() {
		t.Error("the log has not ended with the cloud")
	}
	must.Do(t, os.Mkdir(own.dir, 0o700))
	startOther(t, own)
	if path, ended, err := LogFile("/other"); err != nil || path != own.logFile() || !ended() {
		t.Errorf("the log of a cloud that starts: got %s and error %v, want %s", path, err, own.logFile())
	}
	must.Do(t, os.WriteFile(place.recordFile(), []byte("{"), 0o600))
	if _, _, err := LogFile(""); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("of a damaged record: got error %v", err)
	}
}
