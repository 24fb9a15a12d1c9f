package sandbox

import "github.com/e2bctl/e2bctl/api"

// Error describes a failed call to the service. [api.Error] documents its fields, such as the
// status and the code.
type Error = api.Error

// These are classes of errors of the service, for use with errors.Is. An [*Error] matches the
// classes that belong to its status.
var (
	// ErrNotFound means that the object does not exist or belongs to another key.
	ErrNotFound = api.ErrNotFound
	// ErrUnauthorized means that the key is missing, malformed or unknown.
	ErrUnauthorized = api.ErrUnauthorized
	// ErrForbidden means that the key does not permit the call.
	ErrForbidden = api.ErrForbidden
	// ErrConflict means that the object's state does not allow the call now.
	ErrConflict = api.ErrConflict
	// ErrRateLimited means that there were too many requests, or that there are too many sandboxes.
	ErrRateLimited = api.ErrRateLimited
	// ErrInvalidArgument means that the service refuses the request as invalid.
	ErrInvalidArgument = api.ErrInvalidArgument
	// ErrTimeout means that no answer came in time.
	ErrTimeout = api.ErrTimeout
	// ErrUnavailable means that the service is busy or could not be reached.
	ErrUnavailable = api.ErrUnavailable
	// ErrNothingListens means that a port of this machine refused the connection. That happens when a
	// local cloud has ended. Such an error also matches [ErrUnavailable].
	ErrNothingListens = api.ErrNothingListens
	// ErrRetryable means that the same call can succeed later. It does not mean that the
	// failed call had no effect.
	ErrRetryable = api.ErrRetryable
	// ErrNoAPIKey means that neither an option nor the environment contains a key.
	ErrNoAPIKey = api.ErrNoAPIKey
	// ErrInvalidKey means that the value given as the key cannot be a key. The message never contains
	// the key.
	ErrInvalidKey = api.ErrInvalidKey
	// ErrUntrustedAddress means that an address comes from a less trusted source than the
	// key that would be sent to it.
	ErrUntrustedAddress = api.ErrUntrustedAddress
)
