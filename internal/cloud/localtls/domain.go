package localtls

import (
	"fmt"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// longest is the maximum length of a domain. A name has at most 253 bytes, and longest leaves space
// for "65535-", an id and a dot before the domain.
const longest = 253 - 64

// CheckDomain returns an error if a domain cannot be the domain of a cloud. A valid domain is
// localhost, or a name of at least two labels in lower case, without port and final dot. A single
// label, or a public suffix such as co.uk, is not valid, because an authority for it could certify
// domains of other owners.
func CheckDomain(domain string) error {
	labels := strings.Split(domain, ".")
	for _, label := range labels {
		if !isLabel(label) {
			return fmt.Errorf("the domain %.100q is not a host name in lower case without a port, such as e2b.example.com", domain)
		}
	}
	last := labels[len(labels)-1]
	switch {
	case len(domain) > longest:
		return fmt.Errorf("the domain %.100q… has %d characters: at most %d leave room for the names of sandboxes", domain, len(domain), longest)
	case strings.Trim(last, "0123456789") == "":
		return fmt.Errorf("the domain %q is an address: names below it would lead nowhere", domain)
	case len(labels) == 1 && domain != Localhost:
		return fmt.Errorf("the domain %q has one label: only localhost and names such as e2b.example.com can be certified", domain)
	}
	// By the last rule of the list, an unlisted name with one label is a suffix.
	if suffix, _ := publicsuffix.PublicSuffix(domain); suffix == domain && len(labels) > 1 {
		return fmt.Errorf("the domain %q is a public suffix, below which others have domains: give one of your own below it, such as e2b.%[1]s", domain)
	}
	return nil
}

// CheckHost returns an error if host is not a host name in lower case, without port. A host name
// with a single label is valid, because services in a cluster have such names.
func CheckHost(host string) error {
	for label := range strings.SplitSeq(host, ".") {
		if !isLabel(label) {
			return fmt.Errorf("the host %.100q is not a host name in lower case without a port, such as e2b or e2b.example.com", host)
		}
	}
	return nil
}

// isLabel reports whether s is one label of a host name in lower case.
func isLabel(s string) bool {
	letter := func(c rune) bool { return c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' }
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool { return !letter(c) })
}
