package local

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/sandbox/local"
)

// hostServices is the repeatable flag --host-service, in the order of the command line.
type hostServices []hostService

// hostService is a service of this machine that sandboxes reach by name.
type hostService struct{ name, address string }

func (h hostService) String() string { return h.name + "=" + h.address }

// Type returns the form of a value, for the help of the flag.
func (h *hostServices) Type() string { return "NAME=ADDRESS" }

// String returns the values, separated by commas.
func (h *hostServices) String() string {
	var all []string
	for _, one := range *h {
		all = append(all, one.String())
	}
	return strings.Join(all, ",")
}

// Set adds a value. It makes the path of a socket absolute, so that the path is valid in another
// process. The start of the cloud checks the rest.
func (h *hostServices) Set(value string) error {
	name, address, ok := strings.Cut(value, "=")
	if !ok || name == "" || address == "" {
		return errors.New("want NAME=ADDRESS, such as db=127.0.0.1:5432 or db:5432=unix:/run/db.sock")
	}
	if path, socket := strings.CutPrefix(address, "unix:"); socket {
		whole, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		address = "unix:" + whole
	}
	*h = append(*h, hostService{name, address})
	return nil
}

// arguments returns the values as arguments for another process of e2bctl.
func (h hostServices) arguments() []string {
	var all []string
	for _, one := range h {
		all = append(all, "--host-service", one.String())
	}
	return all
}

// options returns an option for each value.
func (h hostServices) options() []local.Option {
	var all []local.Option
	for _, one := range h {
		all = append(all, local.WithHostService(one.name, one.address))
	}
	return all
}
