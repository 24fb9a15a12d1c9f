package lifecycle

import (
	"context"
	"crypto/sha256"
	"encoding/json"
)

// maxKeys bounds the number of remembered idempotency keys. The oldest keys are dropped first.
const maxKeys = 1000

// attempt is a create request with an idempotency key.
type attempt struct {
	request [sha256.Size]byte
	done    chan struct{} // closed when sb is set
	sb      *Sandbox      // the created sandbox; nil if the request failed
}

// attempts contains earlier create requests. When a client repeats a request, it gets the result of
// the earlier request.
type attempts struct {
	byKey map[string]*attempt
	order []string // keys of successful requests, oldest first
}

// fingerprint identifies a request. It leaves out the password of a proxy, because the password is
// sealed anew for each request and its sealed form is therefore always different.
func (q Request) fingerprint() ([sha256.Size]byte, error) {
	if q.Network != nil && q.Network.Proxy != nil {
		asked, proxy := *q.Network, *q.Network.Proxy
		proxy.Sealed = nil
		asked.Proxy, q.Network = &proxy, &asked
	}
	text, err := json.Marshal(q)
	return sha256.Sum256(text), err
}

// CreateOnce creates a sandbox like [Registry.Create], for a client that repeats a request
// because it received no answer. If an earlier request with the same key has created the
// sandbox or is creating it, CreateOnce returns this sandbox. A failed request may be repeated.
// The error is [ErrKeyReused] if the key was used for a different request.
func (r *Registry) CreateOnce(ctx context.Context, key string, q Request) (Sandbox, error) {
	request, err := q.fingerprint()
	if err != nil {
		return Sandbox{}, err
	}
	for {
		r.mu.Lock()
		a, repeated := r.attempts.byKey[key]
		if !repeated {
			a = &attempt{request: request, done: make(chan struct{})}
			r.attempts.byKey[key] = a
			r.mu.Unlock()
			return r.attempt(ctx, key, a, q)
		}
		r.mu.Unlock()
		if a.request != request {
			return Sandbox{}, ErrKeyReused
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return Sandbox{}, ctx.Err()
		}
		if a.sb != nil {
			return *a.sb, nil
		}
	}
}

func (r *Registry) attempt(ctx context.Context, key string, a *attempt, q Request) (Sandbox, error) {
	sb, err := r.create(ctx, q, &once{key, a.request})
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(a.done)
	if err != nil {
		delete(r.attempts.byKey, key)
		return Sandbox{}, err
	}
	a.sb = &sb
	r.attempts.rememberLocked(key)
	return sb, nil
}

// rememberLocked records the key of a successful request. If there are too many keys, it drops the
// oldest key.
func (a *attempts) rememberLocked(key string) {
	if len(a.order) == maxKeys {
		delete(a.byKey, a.order[0])
		a.order = a.order[1:]
	}
	a.order = append(a.order, key)
}
