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

// maxExpiration bounds the number of characters of a signature's expiration, which is a number
// of seconds.
const maxExpiration = 20

// signed is a signed file URL whose token is not known yet. It contains everything that can be
// computed without the token, because a URL may be long and there may be many sandboxes.
type signed struct {
	given  string
	begun  []hash.Cloner // for each operation, the hash of all signed values before the token
	ending string        // "", or a colon and the expiration
}

// signedURL parses a request for a file. It returns nil if the request has no valid form of a
// signature.
func signedURL(method string, query url.Values) *signed {
	var operations []string
	switch method {
	case http.MethodGet:
		operations = []string{"read"}
	case http.MethodPost:
		operations = []string{"write"}
	case http.MethodOptions: // preflight for reading or writing
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
	// SDKs sign the values exactly as in the query. Absent values are empty.
	for _, operation := range operations {
		sum := sha256.New()
		_, _ = io.WriteString(sum, query.Get("path")+":"+operation+":"+query.Get("username")+":") // a write to a hash never fails
		s.begun = append(s.begun, sum.(hash.Cloner))
	}
	return s
}

// signedBy reports whether token signed the URL. This only serves to find the sandbox: envd checks
// the signature and its expiration again.
func (s *signed) signedBy(token string) bool {
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

// expired reports whether the URL has expired.
func (s *signed) expired(now time.Time) bool {
	expiration := strings.TrimPrefix(s.ending, ":")
	if expiration == "" {
		return false
	}
	seconds, err := strconv.ParseInt(expiration, 10, 64)
	return err != nil || seconds < now.Unix()
}
