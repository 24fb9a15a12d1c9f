//go:build linux

package room

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/survey"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// privateTree makes a tree with files that are closed to others, and other files.
func privateTree(t *testing.T) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	for name, mode := range map[string]os.FileMode{
		"public": 0o644, "program": 0o711, "secret": 0o600, "deep/er/group": 0o640, "deep/er/public": 0o644, "closed/in": 0o644,
	} {
		path := filepath.Join(tree, name)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(name), 0o644), os.Chmod(path, mode)))
	}
	then := time.Unix(1e9, 0)
	for _, dir := range []string{"deep/er", "deep", "."} {
		must.Do(t, os.Chtimes(filepath.Join(tree, dir), then, then))
	}
	must.Do(t, os.Chmod(filepath.Join(tree, "closed"), 0o700))
	return tree
}

// TestPrivate checks that files that only the host's root or a group of the host may read are
// hidden from a sandbox whose root owns the files of the host's root, and that no other file is
// missing.
func TestPrivate(t *testing.T) {
	t.Parallel()
	tree := privateTree(t)
	r := startRoom(t, Options{Trees: []string{tree}})
	defer r.Close()
	if !r.ranged() {
		t.Skip("files of the host's root are nobody's here")
	}
	s := newSandbox(t, r, engine.SandboxOptions{})
	for _, user := range []string{"root", "user"} {
		got := call(t, s, "/run", testRequest{Command: "cd " + tree + " && find . | sort && cat public deep/er/public; stat -c '%Y %a %n' deep/er deep", User: user})
		want := ".\n./deep\n./deep/er\n./deep/er/public\n./program\n./public\npublicdeep/er/public1000000000 755 deep/er\n1000000000 755 deep\n"
		if got.Output != want {
			t.Errorf("%s: got %+v, want %q", user, got, want)
		}
	}
	// Their names are free, and files made there belong to the sandbox.
	if got := sh(t, s, "cd "+tree+" && echo new > secret && mkdir closed && echo new > closed/in && cat secret closed/in"); got.Output != "new\nnew\n" {
		t.Errorf("got %+v", got)
	}
	if got := sh(t, s, "find "+strings.Join(r.trees.paths[:r.trees.system], " ")+" ! -type l ! -perm -o+x ! -perm -o+r"); got.Output != "" || got.Status != 0 {
		t.Errorf("closed to others on the host, and not in the sandbox: %+v", got)
	}
	if data, err := os.ReadFile(filepath.Join(tree, "secret")); err != nil || string(data) != "secret" {
		t.Errorf("the host's file: %q, %v", data, err)
	}
}

// TestPrivateLater checks that the next room relies on an earlier survey, and still finds new
// files.
func TestPrivateLater(t *testing.T) {
	t.Parallel()
	tree := privateTree(t)
	r := startRoom(t, Options{Trees: []string{tree}})
	dir := r.options.Dir
	if err := r.trees.private.wait(t.Context()); err != nil {
		t.Error(err)
	}
	must.Do(t, r.Close())
	if !r.ranged() {
		t.Skip("files of the host's root are nobody's here")
	}
	if s := readSurvey(r.trees.private.surveyFile(tree)); s == nil || len(s.Private()) != 3 {
		t.Errorf("the survey that was kept is %+v", s)
	}
	// A new secret is not shown, regardless of an earlier survey.
	must.Do(t, os.WriteFile(filepath.Join(tree, "later"), nil, 0o600))
	next, err := Start(t.Context(), Options{Dir: mkdir(t, filepath.Join(filepath.Dir(dir), "next")), Isolation: engine.Full, Trees: []string{tree}})
	must.Do(t, err)
	defer next.Close()
	if got := sh(t, newSandbox(t, next, engine.SandboxOptions{}), "ls "+tree); got.Output != "deep\nprogram\npublic\n" {
		t.Errorf("got %+v", got)
	}
}

// TestClosedTree checks that a tree that is closed as a whole is shown as a whole.
func TestClosedTree(t *testing.T) {
	t.Parallel()
	tree := privateTree(t)
	must.Do(t, os.Chmod(tree, 0o700))
	r := startRoom(t, Options{Trees: []string{tree}})
	defer r.Close()
	if got := sh(t, newSandbox(t, r, engine.SandboxOptions{}), "cat "+tree+"/secret"); got.Output != "secret" {
		t.Errorf("got %+v", got)
	}
}

// TestTooPrivate checks that a tree that cannot be shown without its secrets is not shown. The
// start names the tree, and does not count this as a refusal of isolation.
func TestTooPrivate(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	for n := range survey.MaxPrivate + 1 {
		f, err := os.OpenFile(filepath.Join(tree, "file"+strings.Repeat("x", n%100)+string(rune('a'+n/100%26))+string(rune('a'+n/2600))), os.O_CREATE|os.O_WRONLY, 0o600)
		must.Do(t, err)
		f.Close()
	}
	r, err := Start(t.Context(), Options{Dir: instanceDir(t), Trees: []string{tree}})
	if err == nil {
		defer r.Close()
		if r.ranged() {
			t.Fatal("the room started, want an error")
		}
		t.Skip("files of the host's root are nobody's here")
	}
	if !errors.Is(err, survey.ErrTooMany) || errors.Is(err, engine.ErrNoIsolation) || !strings.Contains(err.Error(), tree) {
		t.Errorf("got error %v, want survey.ErrTooMany with %s", err, tree)
	}
}

// TestReadSurvey checks that a survey that another user could have written is not trusted.
func TestReadSurvey(t *testing.T) {
	t.Parallel()
	p := newPrivate(t.TempDir(), slog.New(slog.DiscardHandler))
	tree := t.TempDir()
	file := p.surveyFile(tree)
	must.Do(t, saveSurvey(file, &survey.Snapshot{Made: time.Now()}))
	if p.latestSurvey(tree) == nil {
		t.Error("a survey is not read")
	}
	must.Do(t, os.Chmod(file, 0o622))
	if p.latestSurvey(tree) != nil {
		t.Error("a survey that others can write is read")
	}
	must.Do(t, saveSurvey(file, &survey.Snapshot{Made: time.Now().Add(-2 * surveyExpires)}))
	if p.latestSurvey(tree) != nil {
		t.Error("a survey is relied on for ever")
	}
}

// TestPrivateRenewed checks that a room searches every file again before its survey expires, so
// that no sandbox waits for it.
func TestPrivateRenewed(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("files of the host's root are nobody's here")
	}
	tree, dir := privateTree(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := newPrivate(dir, slog.New(slog.DiscardHandler))
		must.Do(t, p.find(t.Context(), surveyed{paths: []string{tree}}))
		defer p.end()
		must.Do(t, p.wait(t.Context()))
		for _, name := range []string{"public", "program"} {
			must.Do(t, os.Chmod(filepath.Join(tree, name), 0o600))
			time.Sleep(surveyExpires - time.Second) //nolint:forbidigo // in a bubble, whose clock it moves
			synctest.Wait()
			if list := string(p.result.Load().list); !strings.Contains(list, filepath.Join(tree, name)+"\x00") {
				t.Errorf("after nearly a day %q are hidden, want %s among them", list, name)
			}
			if s := p.latestSurvey(tree); s == nil || time.Since(s.Made) > surveyDue {
				t.Errorf("the survey for the next start is %+v, want a new one", s)
			}
		}
		// A clock that was set back does not delay it.
		ahead := *p.result.Load()
		ahead.made = time.Now().Add(surveyExpires)
		p.result.Store(&ahead)
		time.Sleep(surveyCheck + time.Second) //nolint:forbidigo // in a bubble, whose clock it moves
		synctest.Wait()
		if age := p.result.Load().age(); age < 0 {
			t.Errorf("the survey is %v old, want a new one", age)
		}
		// A tree that cannot be searched is shown for a day, and not longer.
		must.Do(t, os.RemoveAll(tree))
		time.Sleep(surveyExpires - p.result.Load().age() - time.Second) //nolint:forbidigo // in a bubble, whose clock it moves
		if err := p.wait(t.Context()); err != nil {
			t.Errorf("within a day: %v", err)
		}
		time.Sleep(surveyCheck + time.Second) //nolint:forbidigo // in a bubble, whose clock it moves
		synctest.Wait()
		if err := p.wait(t.Context()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after a day: %v, want why it could not be looked through", err)
		}
	})
}

// TestPrivateRenewedShown checks that a file that was closed in an unchanged directory is hidden
// from every sandbox that begins after the renewal, although warm ones were made before.
func TestPrivateRenewedShown(t *testing.T) {
	t.Parallel()
	tree := privateTree(t)
	limits := engine.Limits{DiskBytes: 32 << 20}
	r := startRoom(t, Options{Trees: []string{tree}, Warm: &limits, WarmCount: 2})
	defer r.Close()
	if !r.ranged() {
		t.Skip("files of the host's root are nobody's here")
	}
	patience.Until(t, "two warm sandboxes are ready", func() bool { return len(r.warm.ready) == 2 })
	before, err := os.Stat(filepath.Join(tree, "deep/er"))
	must.Do(t, err)
	must.Do(t, os.Chmod(filepath.Join(tree, "deep/er/public"), 0o600))
	if after, err := os.Stat(filepath.Join(tree, "deep/er")); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Fatalf("the directory has changed: %v", err)
	}
	r.trees.private.findAgain(t.Context(), surveyed{r.trees.paths, r.trees.system})
	for range 3 {
		s := newSandbox(t, r, engine.SandboxOptions{Limits: limits})
		if got := sh(t, s, "ls "+tree+"/deep/er"); got.Output != "" || got.Status != 0 {
			t.Errorf("got %+v, want an empty directory", got)
		}
	}
	patience.Until(t, "warm sandboxes are made in their place", func() bool { return len(r.warm.ready) == 2 })
}

// TestPrivateExpiredShown checks that no sandbox begins when the files closed to others are no
// longer known, although warm ones were made before.
func TestPrivateExpiredShown(t *testing.T) {
	t.Parallel()
	tree := privateTree(t)
	limits := engine.Limits{DiskBytes: 32 << 20}
	r := startRoom(t, Options{Trees: []string{tree}, Warm: &limits, WarmCount: 2})
	defer r.Close()
	if !r.ranged() {
		t.Skip("files of the host's root are nobody's here")
	}
	patience.Until(t, "two warm sandboxes are ready", func() bool { return len(r.warm.ready) == 2 })
	expired := *r.trees.private.result.Load()
	expired.made = time.Now().Add(-surveyExpires)
	r.trees.private.result.Store(&expired)
	r.trees.private.findAgain(t.Context(), surveyed{paths: []string{filepath.Join(tree, "gone")}})
	if s, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "test", Limits: limits}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want why it could not be looked through", err)
		if err == nil {
			_ = s.Close()
		}
	}
	patience.Until(t, "the warm sandboxes have ended", func() bool { return len(r.warm.ready) == 0 })
}
