//go:build linux

// Package envdtest runs the daemon of a sandbox inside a test. Its files and its programs are those of this machine.
package envdtest

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/envd"
	"github.com/e2bctl/e2bctl/internal/must"
)

// Token is the token that requests to the daemon must have.
const Token = "envdtoken"

// User is a user of the daemon, with a home. Every user has the ids of the account that runs the test.
type User struct{ Name, Home string }

// Start returns the requests' handler of a daemon that ends with the test. path is the PATH of its programs; empty
// means that of this machine. The first user is the default user.
func Start(t testing.TB, path string, users ...User) http.Handler {
	t.Helper()
	all := make([]envd.User, len(users))
	for i, u := range users {
		all[i] = envd.User{Name: u.Name, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: u.Home, Shell: "/bin/sh"}
	}
	daemon, err := envd.New(envd.Options{Token: Token, Path: cmp.Or(path, os.Getenv("PATH")), Users: all})
	must.Do(t, err)
	t.Cleanup(func() {
		if err := daemon.Close(); err != nil {
			t.Error(err)
		}
	})
	return daemon.Handler()
}

// Serve returns the address of a service that ends with the test. Its requests to sandboxes are those to daemon, and its
// API creates a sandbox and answers every other request with success.
func Serve(t testing.TB, daemon http.HandlerFunc) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("E2b-Sandbox-Port") != "":
			daemon(w, r)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"sandboxID":"i1","templateID":"t","envdVersion":"0.6.13","envdAccessToken":%q}`, Token)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}
