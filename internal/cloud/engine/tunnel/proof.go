package tunnel

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
)

// A daemon that listens on a port can be reached by every program beside it. So it answers no
// request until the other end has proved that it is the server. For this proof, the daemon sends a
// challenge of random bytes. The server sends back a signature of the challenge and of the
// sandbox's identity. The daemon has only the public half of the key.
const (
	challengeSize = 32
	proofPurpose  = "e2bctl tunnel server\x00"
)

// proofTimeout bounds the exchange of challenge and proof.
const proofTimeout = 10 * time.Second

// ErrUnproved means that the other end of a connection did not prove that it is the server.
var ErrUnproved = errors.New("the other end did not prove that it is the server of this sandbox")

// proved returns the bytes that a server signs. The end of every part before the challenge is
// marked, so that no other identity and challenge result in the same bytes.
func proved(identity string, challenge []byte) []byte {
	return append([]byte(proofPurpose+identity+"\x00"), challenge...)
}

// Prove proves to the daemon at the other end of conn that this is the server of the sandbox with
// this identity. If the daemon has a [Listener], call Prove before [Open]. After an error, Prove
// closes conn.
func Prove(ctx context.Context, conn io.ReadWriteCloser, key ed25519.PrivateKey, identity string) error {
	err := exchange(ctx, conn, func() error {
		challenge := make([]byte, challengeSize)
		if _, err := io.ReadFull(conn, challenge); err != nil {
			return fmt.Errorf("wait for the challenge of the daemon in it: %w", err)
		}
		_, err := conn.Write(ed25519.Sign(key, proved(identity, challenge)))
		return err
	})
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return nil
}

// verify is the daemon's half of [Prove].
func verify(ctx context.Context, conn io.ReadWriteCloser, key ed25519.PublicKey, identity string) error {
	return exchange(ctx, conn, func() error {
		challenge := make([]byte, challengeSize)
		if _, err := rand.Read(challenge); err != nil {
			return err
		}
		if _, err := conn.Write(challenge); err != nil {
			return err
		}
		proof := make([]byte, ed25519.SignatureSize)
		if _, err := io.ReadFull(conn, proof); err != nil {
			return err
		}
		if !ed25519.Verify(key, proved(identity, challenge), proof) {
			return ErrUnproved
		}
		return nil
	})
}

// exchange calls do, and closes conn when ctx ends or after proofTimeout.
func exchange(ctx context.Context, conn io.Closer, do func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, proofTimeout, fmt.Errorf("the proof was not made within %v", proofTimeout))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err := do()
	if !stop() && err == nil { // it is closed, or about to be
		err = context.Cause(ctx)
	}
	return link.CauseOf(ctx, err)
}
