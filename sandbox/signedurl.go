package sandbox

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// SignedURLParams sets the user and the validity of a signed URL.
type SignedURLParams struct {
	// User is the owner of uploaded files, and relative paths begin at this user's home. Empty
	// means the sandbox's default user.
	User string
	// Expires is the time for which the URL is valid, rounded up to whole seconds. Zero means that the
	// URL is valid until the sandbox ends.
	Expires time.Duration
}

// DownloadURL returns a URL from which anyone who knows it can GET a file, without a key. It
// sends no request, so it does not check that the file exists.
//
// If all sandboxes share one address, as on a local cloud, only the signature in the URL identifies
// the sandbox. For a sandbox without a token there is no signature, so DownloadURL returns an error
// if such a sandbox shares its address.
func (f *Files) DownloadURL(path string, p *SignedURLParams) (string, error) {
	return f.signedURL("download URL", "read", path, p)
}

// UploadURL returns a URL to which anyone who knows it can write a file, without a key. The request
// is a POST. Its body is either a form whose field "file" contains the content, or the content
// itself as application/octet-stream. If path is empty, the file name in the form is the path. That
// path may be anywhere in the sandbox.
func (f *Files) UploadURL(path string, p *SignedURLParams) (string, error) {
	return f.signedURL("upload URL", "write", path, p)
}

func (f *Files) signedURL(op, operation, path string, p *SignedURLParams) (string, error) {
	if p == nil {
		p = &SignedURLParams{}
	}
	query := url.Values{}
	if path != "" {
		query.Set("path", path)
	}
	if p.User != "" {
		query.Set("username", p.User)
	}
	var expiration string
	if p.Expires != 0 {
		until := time.Now().Add(p.Expires).Add(time.Second - time.Nanosecond)
		expiration = strconv.FormatInt(until.Unix(), 10)
	}
	token := string(f.sb.remote.AccessToken)
	base := f.sb.client.api.SandboxURL()
	switch {
	case p.Expires < 0:
		return "", f.pathError(op, path, invalid(fmt.Sprintf("it would have expired %v ago", -p.Expires)))
	case token == "" && expiration != "":
		return "", f.pathError(op, path, invalid("without a token of the sandbox nothing can be signed, nor expire"))
	case token == "" && base != "":
		return "", f.pathError(op, path, fmt.Errorf("%w: at the address of all sandboxes a signature tells which is meant, and this one has no token to sign with", errors.ErrUnsupported))
	case token != "":
		query.Set("signature", signature(path, operation, p.User, token, expiration))
		if expiration != "" {
			query.Set("signature_expiration", expiration)
		}
	}
	if base == "" {
		base = "https://" + f.sb.Host(protocol.PortEnvd)
	}
	return base + "/files?" + query.Encode(), nil
}

// signature signs an operation on a path for a user. If expiration is empty, the signature does not
// cover it.
func signature(path, operation, user, token, expiration string) string {
	text := path + ":" + operation + ":" + user + ":" + token
	if expiration != "" {
		text += ":" + expiration
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}
