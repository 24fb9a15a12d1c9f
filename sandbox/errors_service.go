package sandbox

import "github.com/e2bctl/e2bctl/api"

// Error describes a call of the service that failed. [api.Error] has its
// fields, such as the status and the code.
type Error = api.Error

// Classes of errors of the service, for errors.Is. An [*Error] matches the classes that
// its status implies.
var (
	// ErrNotFound means that there is no such object, or that it belongs to another key.
	ErrNotFound = api.ErrNotFound
	// ErrUnauthorized means that the key is missing, malformed or unknown.
	ErrUnauthorized = api.ErrUnauthorized
	// ErrForbidden means that the key may not do this.
	ErrForbidden = api.ErrForbidden
	// ErrConflict means that the object's state does not allow this now.
	ErrConflict = api.ErrConflict
	// ErrRateLimited means too many requests or too many sandboxes.
	ErrRateLimited = api.ErrRateLimited
	// ErrInvalidArgument means that the service refuses the request as invalid.
	ErrInvalidArgument = api.ErrInvalidArgument
	// ErrTimeout means that no answer came in time.
	ErrTimeout = api.ErrTimeout
	// ErrUnavailable means that the service is busy or was not reached.
	ErrUnavailable = api.ErrUnavailable
	// ErrNothingListens means that a port of this machine refused the connection, as that
	// of a local cloud does once it has ended. Such an error is also [ErrUnavailable].
	ErrNothingListens = api.ErrNothingListens
	// ErrRetryable means that the same call can succeed later. It does not mean that the
	// failed call had no effect.
	ErrRetryable = api.ErrRetryable
	// ErrNoAPIKey means that neither an option nor the environment has a key.
	ErrNoAPIKey = api.ErrNoAPIKey
	// ErrInvalidKey means that the value cannot be a key. The message never contains the
	// key.
	ErrInvalidKey = api.ErrInvalidKey
	// ErrUntrustedAddress means that an address comes from a less trusted source than the
	// key that would be sent to it.
	ErrUntrustedAddress = api.ErrUntrustedAddress
)
