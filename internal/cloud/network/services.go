package network

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
)

// serviceDomain is the domain of the names by which sandboxes reach services of this machine. No
// host of the internet has a name below internal.
const serviceDomain = ".host.internal"

// serviceNetwork contains the addresses to which the names of services resolve inside a sandbox. The
// network is reserved for documentation, so no host has these addresses.
var serviceNetwork = netip.MustParsePrefix("192.0.2.0/24")

// maxServices is the number of addresses in serviceNetwork, without the first and the last one.
const maxServices = 254

// Service is a service of this machine, or of a network of this machine. Sandboxes reach it by the
// name NAME.host.internal.
type Service struct {
	Name    string // NAME, or NAME:PORT if the port inside sandboxes is not the port of Address
	Address string // host:port, or unix: and the absolute path of a socket
}

// Services contains the services that all sandboxes of a cloud reach by name. It is immutable.
type Services struct {
	all       []service
	cloudPort uint16 // port on which the cloud listens on this machine
}

// service is a Service after validation.
type service struct {
	name    string     // name inside a sandbox, such as db.host.internal
	port    uint16     // port inside a sandbox
	inside  netip.Addr // address to which name resolves inside a sandbox
	network string     // "tcp" or "unix"
	address string     // host:port, or the path of a socket

	host     string // host of address; "": a socket
	hostPort uint16 // port of address; 0: a socket
}

// Rules that errors name if the address of a service is refused.
const (
	ruleServiceAny  = "the unspecified address: give the address of the service, such as 127.0.0.1"
	ruleServiceSelf = "the local cloud itself, which a sandbox must not control"
)

// NewServices checks services. cloudPort is the port on which the cloud itself listens on this
// machine. No service may have this port.
func NewServices(services []Service, cloudPort uint16) (*Services, error) {
	if len(services) > maxServices {
		return nil, fmt.Errorf("network: %d services of this machine are given, and at most %d have a name", len(services), maxServices)
	}
	own, err := (&Dialer{}).ownAddresses()
	if err != nil {
		return nil, fmt.Errorf("network: list the addresses of this machine: %w", err)
	}
	s := &Services{cloudPort: cloudPort}
	for _, given := range services {
		one, err := parseService(given)
		if err == nil {
			err = s.checkStart(one, own)
		}
		if err != nil {
			return nil, fmt.Errorf("network: the service %.100q of this machine at %.255q: %w", given.Name, given.Address, err)
		}
		if s.named(one.name) != nil {
			return nil, fmt.Errorf("network: the service %.100q of this machine is given twice", given.Name)
		}
		s.all = append(s.all, one)
	}
	s.place()
	return s, nil
}

// place gives the services their addresses inside sandboxes. An address depends on the name, and not
// on the order in which the services are given: a sandbox may continue on a server with another order,
// and its programs may remember the address.
func (s *Services) place() {
	slices.SortFunc(s.all, func(a, b service) int { return strings.Compare(a.name, b.name) })
	for i := range s.all {
		n := crc32.ChecksumIEEE([]byte(s.all[i].name)) % maxServices
		for s.at(nthService(n)) != nil {
			n = (n + 1) % maxServices
		}
		s.all[i].inside = nthService(n)
	}
}

func parseService(given Service) (one service, err error) {
	name, _, ported := strings.Cut(given.Name, ":")
	if ported {
		if _, one.port, err = split(given.Name); err != nil {
			return service{}, fmt.Errorf("%.100q is not NAME or NAME:PORT", given.Name)
		}
	}
	name = strings.ToLower(name)
	if strings.Contains(name, ".") || !validName(name) || numeric(name) {
		return service{}, fmt.Errorf("its name has to be one label of a host name, such as db for db%s", serviceDomain)
	}
	one.name = name + serviceDomain
	path, socket := strings.CutPrefix(given.Address, "unix:")
	switch {
	case socket && !filepath.IsAbs(path):
		return service{}, errors.New("the path of a socket has to be absolute, such as unix:/run/db.sock")
	case socket && !ported:
		return service{}, fmt.Errorf("a socket has no port: add the port inside sandboxes to the name, such as %s:5432", name)
	case socket:
		one.network, one.address = "unix", path
		return one, nil
	}
	if one.host, one.hostPort, err = split(given.Address); err != nil {
		return service{}, errors.New("its address has to be host:port, such as 127.0.0.1:5432, or unix: and the path of a socket")
	}
	if !ported {
		one.port = one.hostPort
	}
	one.network, one.address = "tcp", given.Address
	return one, nil
}

// checkStart returns an error if no connection to the service could be permitted. It looks up no
// name: check decides about the addresses of a name when a sandbox connects.
func (s *Services) checkStart(one service, own []netip.Addr) error {
	if one.network == "unix" {
		return nil
	}
	host := one.host
	if normalize(host) == "localhost" {
		host = "127.0.0.1"
	}
	a, err := netip.ParseAddr(host)
	switch name := normalize(host); {
	case err == nil:
		if rule := s.check(a, one.hostPort, own); rule != "" {
			return fmt.Errorf("no sandbox may reach this address: %s", rule)
		}
	case !validName(name), numeric(name):
		return fmt.Errorf("%.255q is neither an address nor the name of a host", host)
	}
	return nil
}

// check returns the rule by which no sandbox may reach an address, even as a service. It returns ""
// if there is no such rule. Loopback and the addresses in own, those of this machine, are permitted
// except for the port of the cloud.
func (s *Services) check(a netip.Addr, port uint16, own []netip.Addr) string {
	switch rule := never(a, nil); rule {
	case "", ruleLoopback:
	case ruleUnspec:
		return ruleServiceAny
	default:
		return rule
	}
	if port == s.cloudPort && slices.ContainsFunc(forms(a), func(form netip.Addr) bool { return isHere(form, own) }) {
		return ruleServiceSelf
	}
	return ""
}

// nthService returns the n-th address for a service. n counts from 0.
func nthService(n uint32) netip.Addr {
	a := serviceNetwork.Addr().As4()
	a[3] = byte(n + 1)
	return netip.AddrFrom4(a)
}

// named returns the service with a name. It returns nil if there is none. s may be nil.
func (s *Services) named(host string) *service {
	name := normalize(host)
	return s.first(func(one service) bool { return one.name == name })
}

// at returns the service whose name resolves to an address. It returns nil if there is none. s may
// be nil.
func (s *Services) at(a netip.Addr) *service {
	return s.first(func(one service) bool { return one.inside == a.Unmap() })
}

func (s *Services) first(is func(service) bool) *service {
	if s == nil {
		return nil
	}
	if i := slices.IndexFunc(s.all, is); i >= 0 {
		return &s.all[i]
	}
	return nil
}

// ServiceNames returns the names of the services that the rules of the sandbox do not deny, with the
// addresses to which they resolve inside the sandbox. A program that has them need not ask
// [Egress.Answer]. They permit nothing: each connection to such an address is checked for the name.
func (e *Egress) ServiceNames(ctx context.Context) map[string]netip.Addr {
	if e.Services == nil {
		return nil
	}
	names := map[string]netip.Addr{}
	for i := range e.Services.all {
		s := &e.Services.all[i]
		if e.asks() || e.permitService(ctx, s, s.port) == nil { // if there is a question, the connection asks it
			names[s.name] = s.inside
		}
	}
	return names
}

// Use is a connection of a sandbox to a service of this machine.
type Use struct {
	Target
	Address string // address of the service on this machine
	Err     error  // reason why the service did not accept the connection; nil: it did
}

// permitService returns a *[DeniedError] if a sandbox may not reach a port of a service. Of the
// rules about addresses, only the rule about all traffic applies, because the operator of the cloud
// has permitted the address.
func (e *Egress) permitService(ctx context.Context, s *service, port uint16) error {
	if port != s.port {
		return &DeniedError{Host: s.name, Rule: fmt.Sprintf("this service of the machine is at port %d only", s.port)}
	}
	_, _, err := e.permitName(ctx, s.name, port)
	return err
}

// dialService connects to a service of this machine. The connection uses no proxy.
func (e *Egress) dialService(ctx context.Context, s *service, port uint16) (net.Conn, error) {
	if err := e.permitService(ctx, s, port); err != nil {
		return nil, err
	}
	conn, err := e.Dialer.service(ctx, e.Services, s)
	if err != nil {
		err = fmt.Errorf("network: %s: %w", s.name, err)
	}
	if e.Used != nil {
		e.Used(Use{Target{s.name, s.port}, s.address, err})
	}
	return conn, err
}

// service connects to a service. The address is checked when the connection is made, because a name
// may lead elsewhere than before.
func (d *Dialer) service(ctx context.Context, all *Services, s *service) (net.Conn, error) {
	if s.network == "unix" {
		return (&net.Dialer{Timeout: attemptTimeout}).DialContext(ctx, s.network, s.address)
	}
	return d.attempt(ctx, s.address, func(a netip.Addr) error {
		var own []netip.Addr
		if s.hostPort == all.cloudPort { // otherwise check does not need them, and listing them takes long
			var err error
			if own, err = d.ownAddresses(); err != nil {
				return err
			}
		}
		if rule := all.check(a, s.hostPort, own); rule != "" {
			return &DeniedError{Host: s.name, Address: a, Rule: rule}
		}
		return nil
	})
}
