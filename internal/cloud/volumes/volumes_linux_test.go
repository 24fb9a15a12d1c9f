package volumes

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openStore opens a store that is closed at the end of the test.
func openStore(t *testing.T, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), dir)
	must.Do(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wantClosed(t, dir)
	})
	return s
}

// wantClosed checks that neither a directory nor anything below it is open.
func wantClosed(t *testing.T, dir string) {
	t.Helper()
	if open := fdtest.Open(t, dir); len(open) > 0 {
		t.Errorf("%q are open", open)
	}
}

// open returns a registry of the volumes in a store. As in a cloud of this user, sandboxes have a
// single id unless the user is root.
func open(s *store.Store) *Registry { return New(Options{Store: s, OneID: os.Geteuid() != 0}) }

func create(t *testing.T, r *Registry, id, name string) Volume {
	t.Helper()
	v, err := r.Create(id, name)
	must.Do(t, err)
	return v
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	r := open(s)
	a, b := create(t, r, "1", "a"), create(t, r, "0", "B_-9")
	for name, want := range map[string]error{
		"a": ErrExists, "": ErrName, "a b": ErrName, "../a": ErrName, "ü": ErrName, strings.Repeat("a", maxName+1): ErrName,
	} {
		if _, err := r.Create("2", name); !errors.Is(err, want) {
			t.Errorf("create %q: got error %v, want %v", name, err, want)
		}
	}
	if diff := cmp.Diff([]Volume{a, b}, r.List()); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	for what, get := range map[string]func() (Volume, error){
		"id": func() (Volume, error) { return r.Get("1") }, "name": func() (Volume, error) { return r.Named("a") },
	} {
		if got, err := get(); err != nil || got != a {
			t.Errorf("by %s: got %v and error %v, want %v", what, got, err, a)
		}
	}
	for what, err := range map[string]error{"get": second(r.Get("x")), "named": second(r.Named("A")), "delete": r.Delete("x", never), "open": second(r.Open("x"))} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s one that does not exist: got error %v, want %v", what, err, ErrNotFound)
		}
	}
	write(t, r, "1", "/kept", "text")
	token := r.Token("1")

	// All of it is there after a restart.
	must.Do(t, s.Close())
	r = open(openStore(t, dir))
	if diff := cmp.Diff([]Volume{a, b}, r.List()); diff != "" {
		t.Errorf("list after a restart (-want +got):\n%s", diff)
	}
	wantFile(t, r, "1", "/kept", "text")
	if err := r.Check("1", token); err != nil {
		t.Errorf("the token after a restart: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func never() bool { return false }

func TestDelete(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := open(openStore(t, dir))
	create(t, r, "1", "a")
	write(t, r, "1", "x/y/z", "text")
	held, release, err := r.Hold("1")
	must.Do(t, err)
	if err := r.Delete("1", never); !errors.Is(err, ErrInUse) {
		t.Errorf("held: got error %v, want %v", err, ErrInUse)
	}
	release()
	content, err := r.Open("1")
	must.Do(t, err)
	for range 2 { // twice is as once
		release()
		if err := r.Delete("1", never); !errors.Is(err, ErrInUse) {
			t.Errorf("open: got error %v, want %v", err, ErrInUse)
		}
	}
	content.Close()
	content.Close()
	if err := r.Delete("1", func() bool { return true }); !errors.Is(err, ErrInUse) {
		t.Errorf("wanted: got error %v, want %v", err, ErrInUse)
	}
	must.Do(t, r.Delete("1", never))
	if _, err := os.Lstat(held.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the files of a deleted volume: got error %v, want them gone", err)
	}
	create(t, r, "2", "a") // the name is free
}

func TestTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Store: store.Temporary(t.TempDir())})
		token := r.Token("1")
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble, whose clock it moves
		if other := r.Token("1"); other == token {
			t.Error("got the same token later, want another one")
		}
		expiry, signature, _ := strings.Cut(token, ".")
		for name, check := range map[string]struct{ id, token string }{
			"another volume": {"2", token},
			"longer":         {"1", "9" + expiry + "." + signature},
			"cut":            {"1", token[:len(token)-1]},
			"no signature":   {"1", expiry},
			"nothing":        {"1", ""},
		} {
			if err := r.Check(check.id, check.token); !errors.Is(err, ErrToken) {
				t.Errorf("%s: got error %v, want %v", name, err, ErrToken)
			}
		}
		if err := r.Check("1", token); err != nil {
			t.Error(err)
		}
		time.Sleep(TokenLife) //nolint:forbidigo // in a bubble, whose clock it moves
		if err := r.Check("1", token); !errors.Is(err, ErrToken) {
			t.Errorf("expired: got error %v, want %v", err, ErrToken)
		}
	})
}
