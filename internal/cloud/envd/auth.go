//go:build linux

package envd

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// requireToken refuses requests that do not have the sandbox's token. The error is plain JSON
// on every route, including routes of Connect. requireToken accepts all requests to /files,
// where a signature may replace the token.
func (s *Server) requireToken(next http.Handler) http.Handler {
	exempt := map[string]bool{"GET /health": true, "GET /files": true, "POST /files": true}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := s.Token()
		if token != "" && !exempt[r.Method+" "+r.URL.Path] && !equal(r.Header.Get(protocol.HeaderAccess), token) {
			writeError(w, http.StatusUnauthorized,
				"unauthorized access, please provide a valid access token or method signing if supported")
			return
		}
		next.ServeHTTP(w, r)
	})
}

type userKey struct{}

// resolveUser adds the user named in a Basic header to the context. It ignores the password, with
// one exception: the header splits a user with a group, such as 1000:1000, at the colon. In this
// case the group is in the password. resolveUser refuses an unknown user on every route, before
// routing.
func (s *Server) resolveUser(next http.Handler) http.Handler {
	writer := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, ok := r.BasicAuth()
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		if group, cut := strings.CutSuffix(password, ":"); cut {
			name += ":" + group
		}
		user, err := s.users.named(name)
		if err != nil {
			refusal := fmt.Errorf("invalid username: '%s'", bounded(name))
			if errors.Is(err, ErrNoID) {
				refusal = fmt.Errorf("%w: %w", refusal, err)
			}
			_ = writer.Write(w, r, connect.NewError(connect.CodeUnauthenticated, refusal))
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

// userOf returns the user for an RPC.
func (s *Server) userOf(ctx context.Context) *User {
	if user, ok := ctx.Value(userKey{}).(*User); ok {
		return user
	}
	return s.users.fallback
}

// Operations that a signature can allow. Each word is part of the signed text.
const (
	signedRead  = "read"
	signedWrite = "write"
)

// authorizeFile checks the token of a request to /files. If there is no valid token, it checks
// the signature of the literal query values.
func (s *Server) authorizeFile(r *http.Request, query url.Values, operation string) error {
	want := s.Token()
	if want == "" {
		return nil
	}
	if token := r.Header.Get(protocol.HeaderAccess); token != "" {
		if !equal(token, want) {
			return errors.New("access token present in header but does not match")
		}
		return nil
	}
	if !query.Has("signature") {
		return errors.New("missing signature query parameter")
	}
	expiration := query.Get("signature_expiration")
	signed := signature(query.Get("path"), operation, query.Get("username"), want, expiration)
	// The newest Python SDK pads base64; older versions and other SDKs do not.
	if !equal(strings.TrimRight(query.Get("signature"), "="), signed) {
		return errors.New("invalid signature")
	}
	if expiration == "" {
		return nil
	}
	if seconds, err := strconv.ParseInt(expiration, 10, 64); err != nil || seconds < time.Now().Unix() {
		return errors.New("signature is already expired")
	}
	return nil
}

// signature returns the signature for an operation on a path. An empty expiration is not part
// of the signed text.
func signature(path, operation, username, token, expiration string) string {
	raw := path + ":" + operation + ":" + username + ":" + token
	if expiration != "" {
		raw += ":" + expiration
	}
	sum := sha256.Sum256([]byte(raw))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// equal compares in constant time, so that timing does not reveal the first difference.
func equal(got, want string) bool {
	return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

// maxRepeated bounds the text that an answer or a log repeats from a client.
const maxRepeated = 256

func bounded(s string) string { return clip.Text(s, maxRepeated) }
