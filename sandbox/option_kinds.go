package sandbox

import (
	"fmt"
	"slices"

	"github.com/e2bctl/e2bctl/api"
)

// CreateOption sets one setting of a new sandbox. Each [HandleOption] and each [ClientOption] is
// also a CreateOption. An option takes precedence over the environment. A later option takes
// precedence over an earlier one.
type CreateOption interface {
	option
	forCreate()
}

// ConnectOption sets one setting of a call of [Connect]. Each [HandleOption] and each
// [ClientOption] is also a ConnectOption.
type ConnectOption interface {
	option
	forConnect()
}

// HandleOption sets one setting of a handle, for a new or an existing sandbox. It is both a
// [CreateOption] and a [ConnectOption].
type HandleOption interface {
	CreateOption
	ConnectOption
}

// ClientOption sets one setting of a [Client]. [Create], [Connect] and [Use] accept a ClientOption,
// because they create a client of their own. The methods of a Client return an error for a
// ClientOption, because their client already exists.
type ClientOption interface {
	HandleOption
	forClient()
}

// option is implemented by all options.
type option interface{ apply(c *config) error }

// These are the kinds of options.
type (
	createOption  func(*config) error
	connectOption func(*config) error
	handleOption  func(*config) error
	clientOption  func(*config) error
)

func (o createOption) apply(c *config) error  { return o(c) }
func (o connectOption) apply(c *config) error { return o(c) }
func (o handleOption) apply(c *config) error  { return o(c) }
func (o clientOption) apply(c *config) error  { return o(c) }

func (createOption) forCreate()   {}
func (connectOption) forConnect() {}
func (handleOption) forCreate()   {}
func (handleOption) forConnect()  {}
func (clientOption) forCreate()   {}
func (clientOption) forConnect()  {}
func (clientOption) forClient()   {}

// WithOptions returns one option that applies opts in order.
func WithOptions(opts ...ClientOption) ClientOption {
	opts = slices.Clone(opts)
	return clientOption(func(c *config) error { return applyAll(c, opts) })
}

// WithDefaults sets options for all sandboxes that the client creates or connects to. An option of
// the call takes precedence. A [ClientOption] among opts makes [NewClient] fail.
func WithDefaults(opts ...CreateOption) ClientOption {
	opts = slices.Clone(opts)
	return clientOption(func(c *config) error {
		c.isOfClient("WithDefaults")
		defaults, err := newConfig(c.sandboxConfig, opts)
		if err != nil {
			return err
		}
		c.sandboxConfig = defaults.sandboxConfig
		return defaults.refuseClients("WithDefaults")
	})
}

// ofAPI converts an option of package api.
func ofAPI(name string, o api.Option) ClientOption {
	return clientOption(func(c *config) error {
		c.client = append(c.client, o)
		c.isOfClient(name)
		return nil
	})
}

// isOfClient records the name of an option that sets a property of the client.
func (c *config) isOfClient(name string) {
	if c.clientOption == "" {
		c.clientOption = name
	}
}

// refuseClients returns an error if an option set a property of the client. place is the name of
// the call that accepts no such option.
func (c *config) refuseClients(place string) error {
	if c.clientOption == "" {
		return nil
	}
	return fmt.Errorf("sandbox: %s: %s is an option of the client: give it to NewClient", place, c.clientOption)
}

// checkOptions returns an error if an option is nil.
func checkOptions[O option](opts []O) error {
	for i, o := range opts {
		if any(o) == nil {
			return fmt.Errorf("sandbox: option %d is nil: leave it out: %w", i+1, api.ErrInvalidArgument)
		}
	}
	return nil
}

// applyAll applies options to c.
func applyAll[O option](c *config, opts []O) error {
	if err := checkOptions(opts); err != nil {
		return err
	}
	for _, o := range opts {
		if err := o.apply(c); err != nil {
			return err
		}
	}
	return nil
}
