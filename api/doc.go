// Package api is the control plane of an E2B service as typed calls: create,
// list, connect to and kill sandboxes. It knows nothing of what runs inside a
// sandbox; see package sandbox for that.
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
// The first source that has a value decides, for each on its own: an [Option],
// the environment (E2B_API_KEY, E2B_API_URL, E2B_DOMAIN, E2B_SANDBOX_URL), the
// file .env, the default. The last two but one are read with [FromEnv] alone.
// The API's address is E2B_API_URL, else https://api. and the domain, which is
// e2b.app unless given.
//
// # Errors
//
// A call that fails gives an [*Error]. Its class is found with errors.Is:
// [ErrNotFound], [ErrUnauthorized] and so on; [ErrRetryable] tells whether the
// same call can succeed later. StatusCode is 0 when no answer came.
//
// A service that takes more than 75 seconds to begin an answer, sends nothing of
// it for 20 seconds, or does not end it within a minute, is given up with an error
// that is [ErrTimeout]; a context with an earlier deadline comes first. Such a call
// is not repeated.
//
// Calls that may be repeated without harm are, up to three times, with a
// growing wait and as Retry-After says. Create is repeated only when provably
// nothing was sent, or when the service says with 429 that it did nothing.
//
// # Secrets
//
// A [Key] redacts itself wherever it is printed. Logs have method, path, status
// and duration of a call, never a header, a query or a body.
//
// All types are safe for concurrent use.
package api
