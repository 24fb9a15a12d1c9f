package volumes

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// TokenLife is the time for which a token is valid.
const TokenLife = 7 * 24 * time.Hour

// ErrToken reports that a token is not valid for the volume, or has expired.
var ErrToken = errors.New("volumes: the token is not valid for this volume, or no longer")

// Token returns a new token for the content of a volume. The token is derived from the seed of the
// store. So if the store keeps the volume, the token stays valid after a restart.
func (r *Registry) Token(id string) string {
	expiry := strconv.FormatInt(time.Now().Add(TokenLife).Unix(), 10)
	return expiry + "." + r.sign(id, expiry)
}

// Check returns [ErrToken] if the token does not authorize access to the volume with an id. The
// volume need not exist.
func (r *Registry) Check(id, token string) error {
	expiry, signature, _ := strings.Cut(token, ".")
	if !hmac.Equal([]byte(signature), []byte(r.sign(id, expiry))) {
		return ErrToken
	}
	seconds, err := strconv.ParseInt(expiry, 10, 64)
	if err != nil || !time.Now().Before(time.Unix(seconds, 0)) {
		return ErrToken
	}
	return nil
}

func (r *Registry) sign(id, expiry string) string {
	mac := hmac.New(sha256.New, r.store.Seed())
	fmt.Fprintf(mac, "volume:%q:%s", id, expiry) // never fails
	return hex.EncodeToString(mac.Sum(nil))
}
