package edge

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxExpiration bounds the time in a signature, a number of seconds.
const maxExpiration = 20

// signed is a file URL that was signed with a token to be found out: all that can
// be computed without it. What a client sends may be long, and the sandboxes many.
type signed struct {
	given  string
	begun  []hash.Cloner // one for each operation that may be meant
	ending string
}

// signedURL reads a request; nil is one that nobody can have signed.
func signedURL(method string, query url.Values) *signed {
	var operations []string
	switch method {
	case http.MethodGet:
		operations = []string{"read"}
	case http.MethodPost:
		operations = []string{"write"}
	case http.MethodOptions: // a browser asks before either
		operations = []string{"read", "write"}
	}
	s := &signed{given: strings.TrimRight(query.Get("signature"), "=")} // some SDKs pad
	if query.Has("signature_expiration") {
		expiration := query.Get("signature_expiration")
		if len(expiration) > maxExpiration {
			return nil
		}
		s.ending = ":" + expiration
	}
	// What the SDKs compute is over the values as they stand in the query, absent ones
	// being empty.
	for _, operation := range operations {
		sum := sha256.New()
		_, _ = io.WriteString(sum, query.Get("path")+":"+operation+":"+query.Get("username")+":") // a hash takes everything
		s.begun = append(s.begun, sum.(hash.Cloner))
	}
	return s
}

// with tells whether token signed the URL. The daemon checks the signature again,
// and whether it has expired: this only finds out who is meant.
func (s *signed) with(token string) bool {
	for _, begun := range s.begun {
		sum, err := begun.Clone()
		if err != nil {
			return false
		}
		_, _ = io.WriteString(sum, token+s.ending)
		want := "v1_" + base64.RawStdEncoding.EncodeToString(sum.Sum(nil))
		if subtle.ConstantTimeCompare([]byte(want), []byte(s.given)) == 1 {
			return true
		}
	}
	return false
}
