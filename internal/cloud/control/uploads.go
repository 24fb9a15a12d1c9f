package control

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/builds"
	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

const (
	// pathUploads is the path of uploaded archives. It needs no API key, because its addresses
	// are signed.
	pathUploads = "/uploads/"
	// uploadLifetime is the time for which a signed address is valid.
	uploadLifetime = 30 * time.Minute
)

// fileLink answers with the address for uploading the archive that has a given hash. Clients choose
// the hash, and the server does not check it.
func (s *Service) fileLink(w http.ResponseWriter, r *http.Request) error {
	t, err := s.templates.Get(templates.ParseReference(r.PathValue("id")))
	if err != nil {
		return err
	}
	if t.BuiltIn {
		return errorf(http.StatusForbidden, "'%s' is a built-in template, which cannot be built", t.Name)
	}
	hash := r.PathValue("hash")
	if !builds.ValidHash(hash) {
		return invalid("the hash must be 64 hexadecimal digits")
	}
	expires := strconv.FormatInt(time.Now().Add(uploadLifetime).Unix(), 10)
	link := url.URL{Scheme: "http", Host: r.Host, Path: pathUploads + hash}
	if r.TLS != nil || s.options.BehindProxy && r.Header.Get("X-Forwarded-Proto") == "https" {
		link.Scheme = "https"
	}
	link.RawQuery = url.Values{"expires": {expires}, "signature": {s.signUpload(hash, expires)}}.Encode()
	writeJSON(w, http.StatusCreated, struct {
		Present bool   `json:"present"`
		URL     string `json:"url"`
	}{s.builds.Uploads().Has(hash), link.String()})
	return nil
}

func (s *Service) signUpload(hash, expires string) string {
	mac := hmac.New(sha256.New, s.options.Store.Seed())
	fmt.Fprintf(mac, "upload:%s:%s", hash, expires)
	return hex.EncodeToString(mac.Sum(nil))
}

// upload stores the uploaded archive.
func (s *Service) upload(w http.ResponseWriter, r *http.Request) error {
	hash := strings.TrimPrefix(r.URL.Path, pathUploads)
	query := r.URL.Query()
	expires := query.Get("expires")
	if !hmac.Equal([]byte(query.Get("signature")), []byte(s.signUpload(hash, expires))) {
		return errorf(http.StatusForbidden, "the signature of the address does not match: ask for another with GET /templates/{templateID}/files/{hash}")
	}
	if seconds, err := strconv.ParseInt(expires, 10, 64); err != nil || time.Now().Unix() > seconds {
		return errorf(http.StatusForbidden, "the address has expired: ask for another with GET /templates/{templateID}/files/{hash}")
	}
	connlimit.Admit(r.Context())
	switch {
	case r.Method != http.MethodPut:
		w.Header().Set("Allow", http.MethodPut)
		return errorf(http.StatusMethodNotAllowed, "%s is not allowed on %s, only PUT", bounded(r.Method), pathUploads)
	case r.ContentLength < 0:
		return errorf(http.StatusLengthRequired, "Content-Length is missing: the archive must be sent with its exact length, and not in chunks")
	case r.ContentLength > builds.MaxUpload:
		return errorf(http.StatusRequestEntityTooLarge, "the archive has %d bytes, and may have %d", r.ContentLength, int64(builds.MaxUpload))
	}
	if err := s.builds.MakeRoom(r.Context(), r.ContentLength); err != nil {
		return err
	}
	body := &patientReader{r.Body, http.NewResponseController(w)}
	defer body.end()
	if err := s.builds.Uploads().Add(hash, body, r.ContentLength); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}
