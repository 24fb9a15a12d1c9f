//go:build linux

package envd

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	identity   = "identity"
	gzipCoding = "gzip"
)

var errNotAcceptable = errors.New("no acceptable encoding found, supported: [gzip]")

// offer is a coding that a client accepts. A coding with a higher quality is preferred.
type offer struct {
	coding  string
	quality float64
}

// acceptance is a parsed Accept-Encoding header.
type acceptance struct {
	offers  []offer // accepted codings, the best first
	refused map[string]bool
}

func parseAcceptEncoding(header string) acceptance {
	a := acceptance{refused: make(map[string]bool)}
	for item := range strings.SplitSeq(header, ",") {
		switch o := parseCoding(item); {
		case o.coding == "":
		case o.quality == 0:
			a.refused[o.coding] = true
		default:
			a.offers = append(a.offers, o)
		}
	}
	slices.SortStableFunc(a.offers, func(a, b offer) int { return cmp.Compare(b.quality, a.quality) })
	return a
}

// parseCoding parses one coding of a header. As in envd, a quality that is not a number counts
// as 1.
func parseCoding(item string) offer {
	coding, parameters, _ := strings.Cut(item, ";")
	o := offer{strings.ToLower(strings.TrimSpace(coding)), 1}
	for parameter := range strings.SplitSeq(parameters, ";") {
		key, value, _ := strings.Cut(parameter, "=")
		if !strings.EqualFold(strings.TrimSpace(key), "q") {
			continue
		}
		if quality, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && !math.IsNaN(quality) {
			o.quality = quality
		}
	}
	return o
}

// refusesIdentity reports whether the client refuses identity, by name or by "*".
func (a acceptance) refusesIdentity() bool {
	return a.refused[identity] || a.refused["*"] && !a.offersIdentity()
}

func (a acceptance) offersIdentity() bool {
	return slices.ContainsFunc(a.offers, func(o offer) bool { return o.coding == identity })
}

// ranksIdentity reports whether the client says how good identity is, so that the order of its codings
// is its own choice and not the default of a library.
func (a acceptance) ranksIdentity() bool { return a.offersIdentity() || a.refusesIdentity() }

// coding chooses gzip or identity. It returns errNotAcceptable if the client refuses both.
func (a acceptance) coding() (string, error) {
	for _, o := range a.offers {
		switch {
		case o.coding == gzipCoding:
			return gzipCoding, nil
		case o.coding == identity, o.coding == "*" && !a.refusesIdentity():
			return identity, nil
		case o.coding == "*" && !a.refused[gzipCoding]:
			return gzipCoding, nil
		}
	}
	if a.refusesIdentity() {
		return "", errNotAcceptable
	}
	return identity, nil
}

// decode decodes the body of an upload, as its Content-Encoding requires.
func decode(body io.Reader, contentEncoding string) (io.Reader, error) {
	switch parseCoding(contentEncoding).coding {
	case "", identity:
		return body, nil
	case gzipCoding:
		r, err := gzip.NewReader(body)
		if err != nil {
			return nil, fmt.Errorf("error decompressing request body: %w", err)
		}
		return r, nil
	}
	return nil, fmt.Errorf("error decompressing request body: unsupported Content-Encoding: %s, supported: [gzip]", bounded(contentEncoding))
}
