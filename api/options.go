package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// Option configures a [Client]. An option that the program passes always takes
// precedence over the environment.
type Option func(*settings) error

type settings struct {
	key, baseURL, domain, sandboxURL setting
	volumeURL                        setting
	transport                        http.RoundTripper
	dial                             func(ctx context.Context, network, address string) (net.Conn, error)
	logger                           *slog.Logger
	retries                          int
	userAgent                        string
	headers                          func(ctx context.Context, h http.Header)
	env                              bool
	envFile                          string
	envFileNamed                     bool
}

// setting is a value with its source.
type setting struct {
	value string
	from  source
}

// source is the origin of a setting; a source with a greater value is more trusted.
type source int

const (
	fromDefault source = iota
	fromFile           // from .env in the working directory; see fromNamedFile for a file that the program names
	fromNamedFile
	fromEnvironment
	fromProgram
)

// WithAPIKey sets the key. An empty key counts as not set.
func WithAPIKey(key Key) Option {
	return func(s *settings) error { return s.key.set(string(key)) }
}

// WithBaseURL sets the address of the API, such as https://api.e2b.app. The
// default is https://api. followed by the domain.
func WithBaseURL(url string) Option {
	return func(s *settings) error { return s.baseURL.set(url) }
}

// WithDomain sets the domain of the service, including its port if it has one.
// The default is e2b.app.
func WithDomain(domain string) Option {
	return func(s *settings) error { return s.domain.set(domain) }
}

// WithSandboxURL sets one address for all ports of all sandboxes; a header of each request names
// the sandbox and the port. The default depends on the domain.
func WithSandboxURL(url string) Option {
	return func(s *settings) error { return s.sandboxURL.set(url) }
}

// WithVolumeURL sets the address of the files in volumes. By default this is the address of the API
// if that address was set explicitly or the volume has no domain. Otherwise it is https://api.
// followed by the volume's domain.
func WithVolumeURL(url string) Option {
	return func(s *settings) error { return s.volumeURL.set(url) }
}

// WithTransport sets the transport that sends the requests, for instrumentation, proxies and tests.
// The caller owns the transport: [Client.Close] does not close it. By default the client has its
// own connection pool, which follows the standard proxy variables.
func WithTransport(t http.RoundTripper) Option {
	return func(s *settings) error {
		if t == nil {
			return errors.New("api: WithTransport: the transport is nil")
		}
		s.transport = t
		return nil
	}
}

// WithDialContext sets the function that opens connections for the client's own pool. Use it
// for services behind a tunnel or a socket. It has no effect with [WithTransport].
func WithDialContext(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(s *settings) error {
		if dial == nil {
			return errors.New("api: WithDialContext: the function is nil")
		}
		s.dial = dial
		return nil
	}
}

// WithLogger sets the logger for calls, at debug level. It logs method, path, status, attempt
// and duration; never a header, a query or a body. By default nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return func(s *settings) error {
		if l == nil {
			return errors.New("api: WithLogger: the logger is nil")
		}
		s.logger = l
		return nil
	}
}

// WithMaxRetries sets the maximum number of retries of a call, if the call may be repeated. The
// default is 3; 0 disables retries.
func WithMaxRetries(n int) Option {
	return func(s *settings) error {
		if n < 0 || n > 100 {
			return fmt.Errorf("api: WithMaxRetries(%d): want 0 to 100", n)
		}
		s.retries = n
		return nil
	}
}

// WithUserAgent puts a product, such as "mytool/1.2", in front of the SDK's own
// User-Agent.
func WithUserAgent(product string) Option {
	return func(s *settings) error {
		for i := range len(product) {
			if product[i] < ' ' || product[i] > '~' {
				return fmt.Errorf("api: WithUserAgent(%q): it has characters that are not printable ASCII", clip.Line(product, 64))
			}
		}
		s.userAgent = product
		return nil
	}
}

// WithHeaders sets a function that adds headers to each request, such as trace headers. Headers
// that the client sets itself take precedence.
func WithHeaders(add func(ctx context.Context, h http.Header)) Option {
	return func(s *settings) error {
		if add == nil {
			return errors.New("api: WithHeaders: the function is nil")
		}
		s.headers = add
		return nil
	}
}

// FromEnv fills in settings that the program's options leave unset: first from the environment
// (E2B_API_KEY, E2B_API_URL, E2B_DOMAIN, E2B_SANDBOX_URL, E2B_VOLUME_API_URL), then from the file
// .env of the working directory. An empty variable counts as unset. The error is
// [ErrUntrustedAddress] if .env sets an address but the key comes from elsewhere: otherwise the
// .env of any directory could send the user's key to a foreign server. [Client.Sources] returns the
// source of each setting.
func FromEnv() Option {
	return func(s *settings) error { s.env = true; return nil }
}

// WithEnvFile names the file that [FromEnv] reads instead of .env; it must exist. The file is
// trusted like the environment: a key from another source may be sent to an address that the file
// sets. An empty path means no file.
func WithEnvFile(path string) Option {
	return func(s *settings) error {
		s.envFile, s.envFileNamed = path, true
		return nil
	}
}

func (s *setting) set(value string) error {
	if value != "" {
		*s = setting{value: value, from: fromProgram}
	}
	return nil
}
