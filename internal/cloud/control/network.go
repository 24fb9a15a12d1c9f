package control

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// egressRequest contains the rules for outgoing connections.
type egressRequest struct {
	AllowOut    []string                 `json:"allowOut,omitempty"`
	DenyOut     []string                 `json:"denyOut,omitempty"`
	DNSServers  []string                 `json:"dnsServers,omitempty"`
	EgressProxy *egressProxy             `json:"egressProxy,omitempty"`
	Rules       map[string][]networkRule `json:"rules,omitempty"`
	Ask         bool                     `json:"ask,omitempty"` // not a field of the service; the service does not ask questions
}

// networkRule describes the changes to the requests to one host, and the allowed ones.
type networkRule struct {
	Transform *transform     `json:"transform,omitempty"`
	Requests  []requestMatch `json:"requests,omitempty"` // not a field of the service; the service does not restrict requests
}

// requestMatch describes requests that a sandbox may send to a host.
type requestMatch struct {
	Methods []string `json:"methods,omitempty"`
	Path    string   `json:"path,omitempty"`
}

type transform struct {
	Headers map[string]string `json:"headers,omitempty"`
}

// networkRequest describes the network of a sandbox to create: outgoing and incoming
// connections.
type networkRequest struct {
	egressRequest
	AllowPublicTraffic *bool  `json:"allowPublicTraffic,omitempty"`
	MaskRequestHost    string `json:"maskRequestHost,omitempty"`
	HTTPSPorts         []int  `json:"httpsPorts,omitempty"`
}

// updateRequest replaces the rules for a running sandbox's outgoing connections.
type updateRequest struct {
	egressRequest
	AllowInternetAccess *bool `json:"allow_internet_access"`
}

// parse returns the rules. prefix begins the paths of fields in errors.
func (q *egressRequest) parse(internet *bool, prefix string) (*network.Rules, error) {
	for host, rules := range q.Rules {
		if len(rules) > 1 {
			return nil, invalid("%srules has %d rules for %q: a host has one", prefix, len(rules), bounded(host))
		}
	}
	asked := q.asked()
	if len(asked.Headers) < len(q.Rules) {
		return nil, invalid("%srules has a host twice: upper and lower case are the same", prefix)
	}
	rules, err := asked.Rules(internet)
	if e, ok := errors.AsType[*network.RuleError](err); ok {
		return nil, invalid("%s%s has %q: %s", prefix, e.List, bounded(e.Entry), e.Reason)
	}
	return rules, err
}

// asked returns the rules in the form in which they are recorded.
func (q *egressRequest) asked() *lifecycle.Network {
	return &lifecycle.Network{AllowOut: q.AllowOut, DenyOut: q.DenyOut, NameServers: q.DNSServers, Headers: q.headers(), Requests: q.requests(), Proxy: q.EgressProxy.asked(), Ask: q.Ask}
}

// headers maps the names of hosts to the headers for requests to them.
func (q *egressRequest) headers() map[string]map[string]string {
	if len(q.Rules) == 0 {
		return nil
	}
	headers := map[string]map[string]string{}
	for host, rules := range q.Rules {
		headers[strings.ToLower(host)] = nil
		for _, rule := range rules {
			if rule.Transform != nil {
				headers[strings.ToLower(host)] = rule.Transform.Headers
			}
		}
	}
	return headers
}

// requests maps the names of hosts to the only requests that a sandbox may send to them.
func (q *egressRequest) requests() map[string][]network.Request {
	requests := map[string][]network.Request{}
	for host, rules := range q.Rules {
		for _, rule := range rules {
			if rule.Requests == nil {
				continue
			}
			of := []network.Request{} // an empty list is refused later
			for _, one := range rule.Requests {
				of = append(of, network.Request(one))
			}
			requests[strings.ToLower(host)] = of
		}
	}
	if len(requests) == 0 {
		return nil
	}
	return requests
}

// rulesAnswer describes rules in an answer. It is the reverse of headers and requests.
func rulesAnswer(n *lifecycle.Network) map[string][]networkRule {
	answer := map[string][]networkRule{}
	for host, headers := range n.Headers {
		answer[host] = []networkRule{}
		var rule networkRule
		if len(headers) > 0 {
			rule.Transform = &transform{headers}
		}
		for _, one := range n.Requests[host] {
			rule.Requests = append(rule.Requests, requestMatch(one))
		}
		if rule.Transform != nil || rule.Requests != nil {
			answer[host] = append(answer[host], rule)
		}
	}
	return answer
}

// checkSecrets returns an error if the rules use a secret that does not exist.
func (s *Service) checkSecrets(rules *network.Rules) error {
	for _, name := range rules.Secrets() {
		if _, err := s.options.Secrets.Get(name); err != nil {
			return notThere("secret_not_found", "rules name the secret %q, which does not exist", bounded(name))
		}
	}
	return nil
}

// egress returns the rules of a sandbox to create. n may be nil.
func (n *networkRequest) egress(internet *bool) (*network.Rules, error) {
	var q egressRequest
	if n != nil {
		q = n.egressRequest
	}
	return q.parse(internet, "network.")
}

// validate checks the fields for incoming connections. n may be nil.
func (n *networkRequest) validate(secure bool) error {
	switch {
	case n == nil:
		return nil
	case len(n.HTTPSPorts) > maxHTTPSPorts:
		return invalid("network.httpsPorts has more than %d ports", maxHTTPSPorts)
	case slices.ContainsFunc(n.HTTPSPorts, notPort):
		return invalid("network.httpsPorts must be ports from 1 to 65535")
	case slices.Contains(n.HTTPSPorts, protocol.PortEnvd):
		return invalid("network.httpsPorts must not have %d, envd's port", protocol.PortEnvd)
	case n.private() && !secure:
		return invalid("network.allowPublicTraffic false needs secure true")
	case n.MaskRequestHost != "" && !validHost(n.MaskRequestHost):
		return invalid("network.maskRequestHost is not a host name")
	}
	return nil
}

const (
	maxHTTPSPorts = 1024
)

func notPort(n int) bool { return n < 1 || n > 65535 }

// private reports whether the ports of user programs require the traffic token.
func (n *networkRequest) private() bool { return n.asked().Private() }

// asked returns the network in the form in which it is recorded. n may be nil.
func (n *networkRequest) asked() *lifecycle.Network {
	if n == nil {
		return nil
	}
	asked := n.egressRequest.asked()
	asked.AllowPublicTraffic, asked.MaskHost, asked.HTTPSPorts = n.AllowPublicTraffic, n.MaskRequestHost, n.HTTPSPorts
	return asked
}

// networkAnswer describes a requested network in an answer. n may be nil.
func networkAnswer(n *lifecycle.Network) *networkRequest {
	if n == nil {
		return nil
	}
	return &networkRequest{
		egressRequest:      egressRequest{AllowOut: n.AllowOut, DenyOut: n.DenyOut, DNSServers: n.NameServers, EgressProxy: proxyAnswer(n.Proxy), Rules: rulesAnswer(n), Ask: n.Ask},
		AllowPublicTraffic: n.AllowPublicTraffic, MaskRequestHost: n.MaskHost, HTTPSPorts: n.HTTPSPorts,
	}
}

// validHost reports whether a mask is a valid Host header once the port is filled
// in.
func validHost(mask string) bool {
	host := strings.ReplaceAll(mask, "${PORT}", "1")
	return len(host) <= 255 && !strings.ContainsAny(host, "/@\\ \"<>{}|^`") && httpguts.ValidHostHeader(host)
}

// setNetwork replaces the rules for a running sandbox's outgoing connections. Fields that are
// left out are cleared. Incoming connections do not change. The request decides whether the
// sandbox has internet access. As on the service, answers still report the internet access with
// which the sandbox was created.
func (s *Service) setNetwork(w http.ResponseWriter, r *http.Request) error {
	var q updateRequest
	if err := decode(w, r, &q, false); err != nil {
		return err
	}
	if err := s.seal(q.EgressProxy, ""); err != nil {
		return err
	}
	rules, err := q.parse(q.AllowInternetAccess, "")
	if err != nil {
		return err
	}
	if err := s.checkSecrets(rules); err != nil {
		return err
	}
	if err := s.checkProxy(r.Context(), rules); err != nil {
		return err
	}
	id, err := sandboxID(r)
	if err != nil {
		return err
	}
	if err := s.sandboxes.SetEgress(id, *q.asked(), rules); err != nil {
		return err
	}
	noContent(w)
	return nil
}
