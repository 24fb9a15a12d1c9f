package cmdutil

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/sandbox"
)

// NetworkRules are the values of the two flags that list hosts. A list is nil if its flag was not
// given, and empty if it was given as "".
type NetworkRules struct{ Allow, Deny []string }

// Add adds the flags under the names allow and deny. all names the flag that denies everything
// else. That flag is required to allow host names.
func (r *NetworkRules) Add(flags *pflag.FlagSet, allow, deny, all string) {
	flags.StringSliceVar(&r.Allow, allow, nil, "allow an `ADDRESS`, a network or a name even if it is denied,\nrepeatable; names need "+all)
	flags.StringSliceVar(&r.Deny, deny, nil, "deny an `ADDRESS` or a network, repeatable")
}

// NetworkFlags are the flags for the network access of a sandbox to create.
type NetworkFlags struct {
	DenyPrivate bool // private networks are denied, except for the hosts of --allow-out

	noInternet bool
	rules      NetworkRules
	headers    hostHeaders
	requests   hostRequests
}

func (n *NetworkFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&n.noInternet, "no-internet", false, "no access to the internet")
	n.rules.Add(flags, "allow-out", "deny-out", "--deny-out "+sandbox.AllTraffic)
	flags.Var(&n.headers, "header", "put a header into requests to https://HOST, repeatable:\nsecret:NAME in VALUE is the value of that secret, which the\nsandbox never sees")
	flags.Var(&n.requests, "allow-request", "let only these requests through to https://HOST, such as\n\"GET packages.example/simple/**\", repeatable; needs --deny-out "+sandbox.AllTraffic)
}

func (n *NetworkFlags) options() []sandbox.CreateOption {
	var options []sandbox.CreateOption
	if n.noInternet {
		options = append(options, sandbox.WithInternet(false))
	}
	if n.rules.given() || len(n.headers)+len(n.requests) > 0 || n.DenyPrivate {
		options = append(options, sandbox.WithNetwork(sandbox.Network{
			AllowOut: n.rules.Allow, DenyOut: n.rules.Deny, Headers: n.headers, Requests: n.requests, DenyPrivate: n.DenyPrivate,
		}))
	}
	return options
}

// Given reports whether one of the flags is set.
func (n *NetworkFlags) Given() bool {
	return n.noInternet || n.rules.given() || len(n.headers)+len(n.requests) > 0
}

// given reports whether one of the lists has a host.
func (r *NetworkRules) given() bool { return len(r.Allow) > 0 || len(r.Deny) > 0 }

// hostHeaders is a flag value of the form HOST:NAME=VALUE. The flag may be repeated. The map
// contains the headers of each host.
type hostHeaders map[string]map[string]string

func (*hostHeaders) Type() string { return "HOST:NAME=VALUE" }

func (*hostHeaders) String() string { return "" }

var errHeader = errors.New("want a host, the name of a header and its value, such as api.example.com:Authorization=\"Bearer secret:example\"")

func (h *hostHeaders) Set(text string) error {
	at, value, valued := strings.Cut(text, "=")
	host, name, _ := strings.Cut(at, ":")
	if !valued || host == "" || name == "" || strings.Contains(name, ":") {
		return errHeader
	}
	before, secret, ok := strings.Cut(value, "secret:")
	if ok && (before == "" || strings.HasSuffix(before, " ")) {
		if secret == "" {
			return errHeader
		}
		value = before + sandbox.SecretRef(secret)
	}
	if *h == nil {
		*h = make(hostHeaders)
	}
	if (*h)[host] == nil {
		(*h)[host] = make(map[string]string)
	}
	(*h)[host][name] = value
	return nil
}

// hostRequests is a flag value of the form METHODS HOST/PATH. The flag may be repeated. The map
// contains the requests to each host.
type hostRequests map[string][]sandbox.RequestRule

func (*hostRequests) Type() string { return "REQUEST" }

func (*hostRequests) String() string { return "" }

func (h *hostRequests) Set(text string) error {
	methods, target, _ := strings.Cut(strings.TrimSpace(text), " ")
	host, path, deeper := strings.Cut(strings.TrimSpace(target), "/")
	if methods == "" || host == "" || strings.ContainsAny(host+path, " :") {
		return errors.New("want methods, a host and a path, such as \"GET packages.example/simple/**\", or \"GET,POST api.example.com\" for every path")
	}
	if deeper {
		path = "/" + path
	}
	if *h == nil {
		*h = make(hostRequests)
	}
	(*h)[host] = append((*h)[host], sandbox.RequestRule{Methods: strings.Split(strings.ToUpper(methods), ","), Path: path})
	return nil
}
