// Package api is a typed client for the control plane of an E2B service: it creates, lists,
// connects to, pauses, forks and kills sandboxes, and manages snapshots and templates. It does
// not run code or commands in a sandbox; package sandbox does.
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
// Each setting comes from the first source that has a value for it: an [Option], the
// environment (E2B_API_KEY, E2B_API_URL, E2B_DOMAIN, E2B_SANDBOX_URL, E2B_VOLUME_API_URL), the
// file .env, and the default. The environment and .env are read only with [FromEnv]. The API's
// address is E2B_API_URL or, without it, https://api. followed by the domain, which is e2b.app
// by default.
//
// # Errors
//
// A call that fails returns an [*Error]. Use errors.Is to find its class: [ErrNotFound],
// [ErrUnauthorized] and so on; [ErrRetryable] means that the same call can succeed later.
// StatusCode is 0 when no answer came.
//
// The client gives up on a service that takes more than 75 seconds to begin an answer, pauses for
// 20 seconds within one, or does not complete the answer within a minute. The error is then
// [ErrTimeout], and the client does not repeat the call. An earlier deadline of the context takes
// precedence. Pause, Fork and a new snapshot wait until the service has saved the files and the
// memory of the sandbox. Their answer may take until the deadline of the context, or 15 minutes if
// the context has none.
//
// Idempotent calls are retried up to three times, with backoff or after the time in
// Retry-After. Calls that create something, and Pause, are retried only in two cases: when
// provably nothing was sent, or when the service answers 429 with Retry-After, which means that
// it did nothing. If an answer has the header Should-Retry, that header decides about the retry
// of any call.
//
// # Secrets
//
// A [Key] redacts itself wherever it is printed. Logs contain the method, path, status and
// duration of a call, never a header, a query or a body.
//
// All types are safe for concurrent use.
package api
