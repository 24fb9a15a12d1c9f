package edge

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxExpiration bounds the length of the expiration in a signature, which is a number
// of seconds.
const maxExpiration = 20

// signed is a signed file URL whose token is yet to be found. It holds everything that
// can be computed without the token, because a client's URL may be long and there may
// be many sandboxes.
type signed struct {
	given  string
	begun  []hash.Cloner // one for each operation that may have been signed
	ending string        // "", or a colon and the expiration
}

// signedURL parses a request; it returns nil if nobody can have signed it.
func signedURL(method string, query url.Values) *signed {
	var operations []string
	switch method {
	case http.MethodGet:
		operations = []string{"read"}
	case http.MethodPost:
		operations = []string{"write"}
	case http.MethodOptions: // a question about either
		operations = []string{"read", "write"}
	}
	s := &signed{given: strings.TrimRight(query.Get("signature"), "=")} // some SDKs add padding
	if query.Has("signature_expiration") {
		expiration := query.Get("signature_expiration")
		if len(expiration) > maxExpiration {
			return nil
		}
		s.ending = ":" + expiration
	}
	// The SDKs sign the values as they stand in the query, with absent ones empty.
	for _, operation := range operations {
		sum := sha256.New()
		_, _ = io.WriteString(sum, query.Get("path")+":"+operation+":"+query.Get("username")+":") // writing to a hash never fails
		s.begun = append(s.begun, sum.(hash.Cloner))
	}
	return s
}

// with reports whether token signed the URL. It only serves to find the sandbox: envd
// checks the signature and its expiration again.
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

// expired reports whether the URL is no longer valid.
func (s *signed) expired(now time.Time) bool {
	expiration := strings.TrimPrefix(s.ending, ":")
	if expiration == "" {
		return false
	}
	seconds, err := strconv.ParseInt(expiration, 10, 64)
	return err != nil || seconds < now.Unix()
}
