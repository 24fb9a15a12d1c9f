//go:build linux

package envd

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSignaturesThatExpire checks the last second of a signature, and expirations that are no numbers.
func TestSignaturesThatExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Users: []User{{Name: "me", Home: "/"}}, Token: "secret"})
		must.Do(t, err)
		now := time.Now().Unix()
		for expiration, want := range map[string]bool{
			"": true, fmt.Sprint(now + 60): true, fmt.Sprint(now): true, fmt.Sprint(now - 1): false, "0": false, "-1": false,
			"soon": false, "99999999999999999999": false, fmt.Sprint(now+60) + ".5": false, "0x7fffffff": false,
		} {
			for user, want := range map[string]bool{"": want, "you": false} { // it is signed for nobody in particular
				query := url.Values{"path": {"a"}, "username": {user}, "signature": {signature("a", signedRead, "", "secret", expiration)}}
				if expiration != "" {
					query.Set("signature_expiration", expiration)
				}
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/files", nil)
				if err := s.authorizeFile(r, query, signedRead); (err == nil) != want {
					t.Errorf("until %q, of %q: got error %v, want it to be valid: %v", expiration, user, err, want)
				}
			}
		}
		must.Do(t, s.Close())
	})
}

// TestNamesOfUsers checks which user a request names: a group follows in the password, which then ends with a colon.
func TestNamesOfUsers(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for password, want := range map[string]string{"": "'nobody-here'", "secret": "'nobody-here'", "staff:": "'nobody-here:staff'", ":": "'nobody-here:'", "a:b:": "'nobody-here:a:b'"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/process.Process/List", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		r.SetBasicAuth("nobody-here", password)
		w := httptest.NewRecorder()
		d.server.Handler().ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), want) {
			t.Errorf("the password %q: got %d %s, want 401 about %s", password, w.Code, w.Body, want)
		}
	}
}

// TestErrorsOfFullDisks checks which errors mean that there is no space.
func TestErrorsOfFullDisks(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{unix.ENOSPC: true, unix.EDQUOT: true, unix.EIO: false, unix.EFBIG: false, errors.New("full"): false} {
		if got := isFull(&os.PathError{Op: "write", Path: "a", Err: err}); got != want {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
}

// TestUsersWithHighIDs checks that a user of the sandbox may have any ids, and others only those that the sandbox has.
func TestUsersWithHighIDs(t *testing.T) {
	t.Parallel()
	const beyond = guest.IDs + 5
	u, err := newUsers([]User{{Name: "me", UID: beyond, GID: beyond, Credential: &syscall.Credential{Uid: beyond, Gid: beyond}}}, "", false, "")
	must.Do(t, err)
	if got, err := u.named("me"); got != &u.list[0] || err != nil {
		t.Errorf("got %+v and error %v, want the user of the list", got, err)
	}
	for id, want := range map[uint32]error{guest.IDs - 1: nil, guest.IDs: ErrNoID, guest.IDs + 1: ErrNoID} {
		for _, user := range []*User{{UID: id}, {GID: id}} {
			if got, err := u.usable(user); !errors.Is(err, want) || (got == user) != (want == nil) {
				t.Errorf("%d:%d: got %+v and error %v, want %v", user.UID, user.GID, got, err, want)
			}
		}
	}
}
