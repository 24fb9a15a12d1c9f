// Package api is a typed client for the control plane of an E2B service: it
// creates, lists, connects to, pauses, forks and kills sandboxes, and manages
// snapshots and templates. It knows nothing about what runs inside a sandbox; see
// package sandbox for that.
//
//	client, err := api.NewClient(api.FromEnv())
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	for info, err := range client.Sandboxes.List(ctx, nil) {
//		…
//	}
//
// # Configuration
//
// Each setting comes from the first source that has a value for it: an
// [Option], the environment (E2B_API_KEY, E2B_API_URL, E2B_DOMAIN,
// E2B_SANDBOX_URL, E2B_VOLUME_API_URL), the file .env, the default. The environment and .env are
// read only with [FromEnv]. The API's address is E2B_API_URL or, without it,
// https://api. followed by the domain, which is e2b.app by default.
//
// # Errors
//
// A call that fails returns an [*Error]. Use errors.Is to find its class:
// [ErrNotFound], [ErrUnauthorized] and so on; [ErrRetryable] says that the same
// call can succeed later. StatusCode is 0 when no answer came.
//
// The client gives up on a service that takes more than 75 seconds to begin an
// answer, pauses for 20 seconds within one, or does not complete it within a
// minute. The error is then [ErrTimeout], and the call is not repeated. If the
// context has an earlier deadline, that applies. Pause, Fork and a new snapshot wait
// for the files and the memory of the sandbox to be saved: their answer may begin at
// the deadline of the context or, if it has none, after 15 minutes.
//
// Idempotent calls are retried up to three times, with backoff or as
// Retry-After says. Calls that make something, and Pause, are retried only when
// provably nothing was sent, or when the service answers 429 with Retry-After, which
// says that it did nothing. An answer with Should-Retry decides that for every call.
//
// # Secrets
//
// A [Key] redacts itself wherever it is printed. Logs contain the method, path,
// status and duration of a call, never a header, a query or a body.
//
// All types are safe for concurrent use.
package api
