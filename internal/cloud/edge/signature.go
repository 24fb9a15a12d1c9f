package edge

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
)

// signedWith tells whether a file URL was signed with token. The daemon checks
// the signature again, and whether it has expired: this only finds out who is
// meant.
func signedWith(token, method string, query url.Values) bool {
	var operations []string
	switch method {
	case http.MethodGet:
		operations = []string{"read"}
	case http.MethodPost:
		operations = []string{"write"}
	case http.MethodOptions: // a browser asks before either
		operations = []string{"read", "write"}
	}
	given := strings.TrimRight(query.Get("signature"), "=") // some SDKs pad
	for _, operation := range operations {
		want := signature(token, operation, query)
		if subtle.ConstantTimeCompare([]byte(want), []byte(given)) == 1 {
			return true
		}
	}
	return false
}

// signature is what the SDKs compute: over the values as they stand in the
// query, absent ones being empty.
func signature(token, operation string, query url.Values) string {
	text := query.Get("path") + ":" + operation + ":" + query.Get("username") + ":" + token
	if query.Has("signature_expiration") {
		text += ":" + query.Get("signature_expiration")
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}
