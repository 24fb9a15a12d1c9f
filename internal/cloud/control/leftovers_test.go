package control

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// dependents is a context that counts the contexts that end with it.
type dependents struct {
	context.Context //nolint:containedctx // a wrapper

	open, all *int
}

// Value hides the kind of the context, so that others use AfterFunc.
func (dependents) Value(any) any { return nil }

func (d dependents) AfterFunc(f func()) (stop func() bool) {
	*d.open++
	*d.all++
	end := context.AfterFunc(d.Context, f)
	return sync.OnceValue(func() bool { *d.open--; return end() })
}

// ofContent returns a call of the content API, of a volume with the file /f.
func (s *service) ofContent(t *testing.T, do func(*contentCall) error) handler {
	t.Helper()
	id, token := s.createVolume(t, "data"+strings.ReplaceAll(newUUID(), "-", ""))
	resp, text := s.content(t, token, "PUT", id, "file", url.Values{"path": {"/f"}}, strings.NewReader(strings.Repeat("x", 2*contentPart+1)))
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("got %d %s, want 201", resp.StatusCode, text)
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		r.SetPathValue("id", id)
		r.Header.Set("Authorization", "Bearer "+token)
		return s.Service.content(w, r, do)
	}
}

// TestCallsLeaveNoTimer checks that no call that bounds its time leaves the timer of that bound behind, however
// the call ends.
func TestCallsLeaveNoTimer(t *testing.T) {
	t.Parallel()
	linuxOnly(t)
	s := start(t)
	id, ask := s.asking(t, "b.test")
	ask()
	s.freed = func(context.Context) {}
	for name, tt := range map[string]struct {
		do     handler
		target string
		body   string
		fails  bool
	}{
		"any":                  {do: inTime(func(http.ResponseWriter, *http.Request) error { return nil })},
		"questions":            {do: s.asks},
		"events":               {do: s.listEvents, target: "after=" + protocol.EventsStart},
		"waited events":        {do: s.listEvents, target: "wait=true&after=" + protocol.EventsStart},
		"a creation":           {do: s.create(version2), body: `{"templateID":"base"}`},
		"a refused creation":   {do: s.create(version2), body: `{"templateID":"base","volumeMounts":[{"name":"none","path":"/a"}]}`, fails: true},
		"a deletion":           {do: func(w http.ResponseWriter, r *http.Request) error { s.deleted(w, r); return nil }},
		"a list of files":      {do: s.ofContent(t, (*contentCall).list), target: "path=/"},
		"a list of no files":   {do: s.ofContent(t, (*contentCall).list), target: "path=/x", fails: true},
		"a removal":            {do: s.ofContent(t, (*contentCall).remove), target: "path=/f"},
		"a removal of nothing": {do: s.ofContent(t, (*contentCall).remove), target: "path=/x", fails: true},
	} {
		open, all := 0, 0
		r := httptest.NewRequestWithContext(dependents{t.Context(), &open, &all}, http.MethodPost, "/?"+tt.target, strings.NewReader(tt.body))
		if strings.HasPrefix(name, "questions") {
			r.SetPathValue("id", id)
		}
		if err := tt.do(httptest.NewRecorder(), r); (err != nil) != tt.fails || open != 0 || all == 0 {
			t.Errorf("%s: got error %v, and %d of %d contexts stay, want none of at least one", name, err, open, all)
		}
	}
}

// hasDeadlines is an answer that keeps the deadlines of its connection, in the order in which they are set.
type hasDeadlines struct {
	*httptest.ResponseRecorder

	read, write []time.Time
}

func (h *hasDeadlines) SetReadDeadline(at time.Time) error { h.read = append(h.read, at); return nil }
func (h *hasDeadlines) SetWriteDeadline(at time.Time) error {
	h.write = append(h.write, at)
	return nil
}

// TestTransfersProgress checks that each part of a file has a deadline of its own, and that a connection has
// none after the transfer, which would break off its next request.
func TestTransfersProgress(t *testing.T) {
	t.Parallel()
	linuxOnly(t)
	s := start(t)
	for name, tt := range map[string]struct {
		do          handler
		read, write int // how many deadlines are set at least
		body        string
	}{
		"a file that is read":    {s.ofContent(t, (*contentCall).read), 0, 3, ""},
		"a file that is written": {s.ofContent(t, (*contentCall).write), 2, 0, "text"},
		"a file that stays":      {s.ofContent(t, (*contentCall).write), 0, 0, "text"},
	} {
		w := &hasDeadlines{ResponseRecorder: httptest.NewRecorder()}
		path := "/?path=/f&force=" + strconv.FormatBool(tt.read > 0)
		synctest.Test(t, func(t *testing.T) { // in which no time passes
			err := tt.do(w, httptest.NewRequestWithContext(t.Context(), http.MethodPut, path, strings.NewReader(tt.body)))
			if stays := tt.read+tt.write == 0; (err != nil) != stays {
				t.Errorf("%s: got error %v", name, err)
			}
			w.check(t, name+", read", w.read, tt.read)
			w.check(t, name+", write", w.write, tt.write)
		})
	}
}

// check checks the deadlines of one direction: at least some of contentIdle, and none in the end.
func (*hasDeadlines) check(t *testing.T, what string, all []time.Time, least int) {
	t.Helper()
	if len(all) < least || least == 0 && len(all) > 1 {
		t.Errorf("%s: got %d deadlines, want %d", what, len(all), least)
	}
	for i, at := range all {
		want := time.Time{}
		if i < len(all)-1 {
			want = time.Now().Add(contentIdle)
		}
		if !at.Equal(want) {
			t.Errorf("%s: the deadline %d of %d is %v, want %v", what, i, len(all), at, want)
		}
	}
}

// TestFilesAreClosed checks that no file stays open that was read, whether it could be used or not.
func TestFilesAreClosed(t *testing.T) {
	t.Parallel()
	linuxOnly(t)
	s := start(t)
	dir := t.TempDir()
	keys, large := filepath.Join(dir, "keys"), filepath.Join(dir, "large")
	must.Do(t, os.WriteFile(keys, []byte(keyPrefix+strings.Repeat("0", minKeyDigits)), 0o600))
	must.Do(t, os.WriteFile(large, make([]byte, maxKeyFile+1), 0o600))
	read := s.ofContent(t, (*contentCall).read)
	get := func(method string) error {
		return read(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, "/?path=/f", nil))
	}
	for range 3 {
		must.Do(t, errors.Join(get(http.MethodGet), get(http.MethodHead)))
		if _, err := OpenKeyFiles([]string{large}, s.options.Logger); err == nil {
			t.Error("a large file was taken")
		}
	}
	for range 10 { // last, because a collection of garbage closes files
		_, err := OpenKeyFiles([]string{keys}, s.options.Logger)
		must.Do(t, err)
	}
	all, err := os.ReadDir("/proc/self/fd")
	must.Do(t, err)
	for _, fd := range all {
		target, err := os.Readlink("/proc/self/fd/" + fd.Name())
		ours := slices.ContainsFunc([]string{keys, large, "/f"}, func(name string) bool { return strings.HasSuffix(target, name) })
		if err == nil && ours && strings.Contains(target, t.Name()) {
			t.Errorf("%s is open", target)
		}
	}
}

// TestContentAnswer checks each field of a description of a file, and each attribute that a client can set.
func TestContentAnswer(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC) }
	want := contentEntry{Name: "f", Type: volumes.Symlink, Path: "/d/f", Size: 1, Mode: 2, UID: 3, GID: 4, ATime: at(5), MTime: at(6), CTime: at(7), Target: "x"}
	e := volumes.Entry{Path: "/d/f", Kind: volumes.Symlink, Size: 1, Mode: 2, Accessed: at(5), Modified: at(6), Changed: at(7), Target: "x"}
	e.Owner.UID, e.Owner.GID = 3, 4
	if diff := cmp.Diff(want, contentAnswer(e)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	v := openContent(t)
	for _, tt := range []struct {
		method, call, path, query, body string
		uid, gid                        uint32
	}{
		{"PUT", "file", "/file", "mode=448&uid=3&gid=4", "", 3, 4},
		{"POST", "dir", "/dir", "mode=448&uid=4&gid=3", "", 4, 3},
		{"PATCH", "path", "/file", "", `{"mode":448,"uid":5,"gid":6}`, 5, 6},
	} {
		more, err := url.ParseQuery(tt.query)
		must.Do(t, err)
		_, text := v.call(t, tt.method, tt.call, tt.path, more, tt.body)
		if got := entry(t, text); got.Mode != 0o700 || os.Geteuid() == 0 && (got.UID != tt.uid || got.GID != tt.gid) {
			t.Errorf("%s: got %+v, want the mode 0700 and the owner %d:%d", tt.method, got, tt.uid, tt.gid)
		}
	}
}
