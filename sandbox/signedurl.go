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

// SignedURLParams say for whom and how long a URL is good.
type SignedURLParams struct {
	// User is whose home a relative path starts at, and who owns what is
	// uploaded; empty means the sandbox's default user.
	User string
	// Expires is for how long the URL is good, in whole seconds, begun ones
	// included; 0 means as long as the sandbox lives.
	Expires time.Duration
}

// DownloadURL is a URL under which everybody who knows it can GET a file, without
// a key. Nothing is asked of the sandbox: the file may be missing.
//
// Where all sandboxes share one address, that of a local cloud for instance, the
// signature alone tells which is meant; a sandbox without a token has none, and
// no such URL.
func (f *Files) DownloadURL(path string, p *SignedURLParams) (string, error) {
	return f.signedURL("download URL", "read", path, p)
}

// UploadURL is a URL under which everybody who knows it can write a file, without
// a key: by a POST of a form whose field "file" has the content, or of the content
// itself as application/octet-stream. With an empty path the form's file name
// says where it goes, wherever that is.
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

// signature signs an operation on a path for a user. An empty expiration is not
// signed.
func signature(path, operation, user, token, expiration string) string {
	text := path + ":" + operation + ":" + user + ":" + token
	if expiration != "" {
		text += ":" + expiration
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}
