package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
)

// checkNames checks that the host names of sandboxes resolve to this machine. It checks the names
// of the running local cloud. If no local cloud runs, it checks the names of a local cloud with the
// given domain. Only programs that find the cloud by its domain need these names.
func checkNames(ctx context.Context, domain string) check {
	if place, err := localcloud.Find(); err == nil {
		if record, err := place.Read(); err == nil && record.Domain != "" {
			domain = record.Domain
		}
	}
	name, _, err := net.SplitHostPort(domain)
	if err != nil {
		return check{Name: "names", Status: checkFailed, Detail: err.Error()}
	}
	c := check{Name: "names", Status: checkOK, Detail: "names below " + name + " lead to this machine"}
	if err := leadsHere(ctx, "49983-e2bctl."+name); err != nil {
		c.Status, c.Detail = checkWarning, err.Error()
		c.Hint = "programs that know only " + api.EnvDomain + ", such as those in Node, do not find sandboxes; " + api.EnvAPIURL + " and " + api.EnvSandboxURL + " need no names, and the next major version of the official SDKs no longer reads them; e2bctl port-forward makes a port reachable without names"
		if name == "localhost" || strings.HasSuffix(name, ".localhost") {
			c.Hint += "; apt-get install libnss-myhostname mends it, or systemd-resolved, or e2bctl local up --domain with a name whose wildcard leads to 127.0.0.1"
		}
	}
	return c
}

// leadsHere returns an error if a name does not resolve or has an address that is not a loopback
// address.
func leadsHere(ctx context.Context, name string) error {
	addresses, err := resolve(ctx, name)
	if err != nil {
		return fmt.Errorf("%s does not resolve: %w", name, err)
	}
	for _, text := range addresses {
		if address, err := netip.ParseAddr(text); err != nil || !address.IsLoopback() {
			return fmt.Errorf("%s leads to %s, not to this machine", name, text)
		}
	}
	return nil
}

// resolve asks the system's resolver, which most languages use. Go's own resolver does not load the
// system's modules that resolve names under localhost.
func resolve(ctx context.Context, name string) ([]string, error) {
	getent, err := hostprogram.Find("getent")
	if err != nil {
		return net.DefaultResolver.LookupHost(ctx, name)
	}
	output, err := hostprogram.Command(ctx, "", getent, "ahosts", name).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 2 {
		return nil, errors.New("the system knows no such name")
	}
	if err != nil {
		return nil, fmt.Errorf("getent: %w", err)
	}
	var addresses []string
	for line := range strings.Lines(string(output)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			addresses = append(addresses, fields[0])
		}
	}
	return addresses, nil
}
