package kubernetes

import (
	"bytes"
	"compress/gzip"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/types"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// minSecret is the least number of bytes of a secret.
const minSecret = 32

// keys are the keys of an engine, all derived from its secret. Servers with the same secret and
// namespace have the same keys.
type keys struct {
	instance string             // label of the engine's objects
	proof    ed25519.PrivateKey // proves to pods that this is their server
	sealing  cipher.AEAD        // seals the records of sandboxes
	naming   []byte             // makes the ids of requests with an idempotency key
}

// newKeys derives keys from a secret. Without one they are random.
func newKeys(secret []byte, namespace string) (k keys, err error) {
	if len(secret) == 0 {
		secret = make([]byte, minSecret)
		_, _ = rand.Read(secret) // never fails
	}
	if len(secret) < minSecret {
		return k, fmt.Errorf("the secret has %d bytes, and %d is the least", len(secret), minSecret)
	}
	derive := func(purpose string, size int) (key []byte) {
		if err == nil {
			key, err = hkdf.Key(sha256.New, secret, nil, "e2bctl kubernetes "+purpose+" "+namespace, size)
		}
		return key
	}
	instance, seed, sealing, naming := derive("instance", 8), derive("proof", ed25519.SeedSize), derive("sealing", 32), derive("naming", 32)
	if err != nil {
		return k, err
	}
	block, err := aes.NewCipher(sealing)
	if err != nil {
		return k, err
	}
	k.sealing, err = cipher.NewGCMWithRandomNonce(block)
	k.naming = naming
	k.instance, k.proof = hex.EncodeToString(instance), ed25519.NewKeyFromSeed(seed)
	return k, err
}

// Bounds of the sealed part of a record, in bytes: of its text, and sealed, as all annotations of an
// object together have at most 256 KiB.
const (
	maxOpened = 4 << 20
	maxSealed = 128 << 10
)

// seal encrypts the sealed part of a record, bound to one pod. Errors include [engine.ErrTooLarge].
func (k *keys) seal(text []byte, id string, pod types.UID) ([]byte, error) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(text)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	sealed := k.sealing.Seal(nil, nil, packed.Bytes(), boundTo(id, pod))
	if len(text) > maxOpened || len(sealed) > maxSealed {
		return nil, fmt.Errorf("%w: compressed it has %d KiB, and an object of the cluster can carry %d", engine.ErrTooLarge, len(sealed)>>10, maxSealed>>10)
	}
	return sealed, nil
}

// open returns the text that seal has sealed.
func (k *keys) open(sealed []byte, id string, pod types.UID) ([]byte, error) {
	packed, err := k.sealing.Open(nil, nil, sealed, boundTo(id, pod))
	if err != nil {
		return nil, errors.New("it was sealed with another secret, for another sandbox, or was changed since")
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxOpened))
}

// boundTo returns the additional data of a seal. The namespace is a part of the key.
func boundTo(id string, pod types.UID) []byte { return []byte(id + "\x00" + string(pod)) }
