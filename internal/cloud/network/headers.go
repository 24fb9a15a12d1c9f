package network

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Bounds of header rules.
const (
	maxHeaderHosts   = 10
	maxHeaderHost    = 128
	maxHeaders       = 20 // headers for a host
	maxHeaderName    = 64
	maxHeaderValue   = 2048 // bytes, before secrets are inserted
	maxHeaderSecrets = 32   // secrets in the headers for a host
)

// Header is a header that is added to requests to a host.
type Header struct {
	Name  string // canonical form
	value []part
}

// part is a part of the value of a header: a text, or the name of a secret. The value of the secret
// replaces its name.
type part struct{ text, secret string }

// Value returns the value of the header. secret returns the value of a secret by name.
func (h *Header) Value(secret func(name string) (string, error)) (string, error) {
	var value strings.Builder
	for _, p := range h.value {
		text := p.text
		if p.secret != "" {
			var err error
			if text, err = secret(p.secret); err != nil {
				return "", fmt.Errorf("the secret %s of the header %s: %w", p.secret, h.Name, err)
			}
		}
		value.WriteString(text)
	}
	return value.String(), nil
}

// headerRules maps hosts to the headers for requests to them. A key is a name, or a pattern
// such as "*.example.com".
type headerRules map[string][]Header

// notHeaders lists headers about the destination or the transmission of a request. No rule can
// set them.
var notHeaders = []string{
	"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "Te", "Trailer", "Expect",
	"Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Http2-Settings",
}

// WithHeaders returns the same rules with headers for requests to hosts. Hosts have the service's
// form: "example.com", or "*.example.com" for every name below example.com. The name of a sandbox
// may be followed by the port of its cloud, because clients use such names. In values,
// ${e2b.secrets.NAME} is replaced by the value of a secret. If a rule is invalid, the error is a
// [*RuleError].
func (r *Rules) WithHeaders(asked map[string]map[string]string) (*Rules, error) {
	if len(asked) == 0 {
		return r, nil
	}
	found := headerRules{}
	for _, entry := range slices.Sorted(maps.Keys(asked)) {
		if len(asked) > maxHeaderHosts {
			return nil, &RuleError{"rules", entry, fmt.Sprintf("there are %d hosts, and %d is the limit", len(asked), maxHeaderHosts)}
		}
		host := normalize(entry)
		if err := checkHeaderHost(entry, host); err != nil {
			return nil, err
		}
		if _, twice := found[host]; twice {
			return nil, &RuleError{"rules", entry, "it is there twice: upper and lower case are the same"}
		}
		headers, err := parseHeaders(entry, asked[entry])
		if err != nil {
			return nil, err
		}
		found[host] = headers
	}
	var with Rules
	if r != nil {
		with = *r
	}
	with.headers = found
	return &with, nil
}

func checkHeaderHost(entry, host string) error {
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	switch name := strings.TrimPrefix(host, "*."); {
	case peerEntry(host) && len(entry) <= maxHeaderHost:
		return nil
	case err == nil || validName(name) && numeric(name):
		return &RuleError{"rules", entry, "headers are for hosts with a name: an address, or a name that ends in a number, has no certificate to check"}
	case strings.Contains(host, ":"):
		return &RuleError{"rules", entry, "want a name without a scheme and a port: headers are for https on port 443, and only names of sandboxes have another one"}
	case len(entry) > maxHeaderHost || host == "*" || !validPattern(host):
		return &RuleError{"rules", entry, fmt.Sprintf("want a name of at most %d characters such as example.com or *.example.com", maxHeaderHost)}
	}
	return nil
}

func parseHeaders(entry string, asked map[string]string) ([]Header, error) {
	if len(asked) > maxHeaders {
		return nil, &RuleError{"rules", entry, fmt.Sprintf("there are %d headers, and %d is the limit", len(asked), maxHeaders)}
	}
	secrets := 0
	var headers []Header
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case len(name) > maxHeaderName || !httpguts.ValidHeaderFieldName(name):
			return nil, &RuleError{"rules", entry, fmt.Sprintf("%.100q is not the name of a header of at most %d characters", name, maxHeaderName)}
		case slices.Contains(notHeaders, canonical):
			return nil, &RuleError{"rules", entry, fmt.Sprintf("the header %s belongs to the connection: no rule can set it", canonical)}
		case slices.ContainsFunc(headers, func(h Header) bool { return h.Name == canonical }):
			return nil, &RuleError{"rules", entry, fmt.Sprintf("the header %s is there twice: upper and lower case are the same", canonical)}
		}
		value, err := parseValue(asked[name])
		if err != nil { // the error does not contain the value, which may be a secret
			return nil, &RuleError{"rules", entry, fmt.Sprintf("the value of the header %s %v", canonical, err)}
		}
		for _, p := range value {
			if p.secret != "" {
				secrets++
			}
		}
		headers = append(headers, Header{canonical, value})
	}
	if secrets > maxHeaderSecrets {
		return nil, &RuleError{"rules", entry, fmt.Sprintf("its headers name %d secrets, and %d is the limit", secrets, maxHeaderSecrets)}
	}
	return headers, nil
}

// The beginning of a placeholder, and the kinds of placeholders.
const (
	placeholder       = "${e2b."
	placeholderSecret = "secrets."
	placeholderToken  = "identity.tokens."
)

// parseValue splits the value of a header into parts.
func parseValue(text string) ([]part, error) {
	if len(text) > maxHeaderValue || !httpguts.ValidHeaderFieldValue(text) {
		return nil, fmt.Errorf("has more than %d bytes, or line breaks or other control characters", maxHeaderValue)
	}
	var parts []part
	for {
		before, rest, more := strings.Cut(text, placeholder)
		if before != "" {
			parts = append(parts, part{text: before})
		}
		if !more {
			return parts, nil
		}
		inside, after, closed := strings.Cut(rest, "}")
		name, isSecret := strings.CutPrefix(inside, placeholderSecret)
		switch {
		case closed && strings.HasPrefix(inside, placeholderToken):
			return nil, fmt.Errorf("has an IAM token (%s%s…}), which this local cloud does not support", placeholder, placeholderToken)
		case !closed || !isSecret || !validSecret(name):
			return nil, fmt.Errorf("has a placeholder that is not %s%sNAME}, with a name of letters, digits, hyphens and underscores", placeholder, placeholderSecret)
		}
		parts = append(parts, part{secret: strings.ToLower(name)})
		text = after
	}
}

func validSecret(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return name != "" && strings.Trim(name, letters) == ""
}

// Secrets returns the names of all secrets in the headers, without duplicates.
func (r *Rules) Secrets() []string {
	if r == nil {
		return nil
	}
	names := map[string]bool{}
	for _, headers := range r.headers {
		for _, h := range headers {
			for _, p := range h.value {
				if p.secret != "" {
					names[p.secret] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Headers returns the headers for requests to a host. If there are headers for the host's name, it
// returns these. Otherwise it returns the headers for the longest pattern that matches the name.
func (r *Rules) Headers(host string) []Header {
	if r == nil {
		return nil
	}
	headers, _ := byHost(r.headers, host)
	return headers
}

// byHost returns the rule for a host: that of its name, or that of the longest pattern that matches the
// name. found reports whether there is one.
func byHost[T any](rules map[string]T, host string) (rule T, found bool) {
	name := normalize(host)
	if len(rules) == 0 || !validName(name) {
		return rule, false
	}
	if rule, found = rules[name]; found {
		return rule, true
	}
	for more := true; more; {
		_, name, more = strings.Cut(name, ".")
		if rule, found = rules["*."+name]; found && more {
			return rule, true
		}
	}
	return rule, false
}
