//go:build linux

package agent

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

const (
	identity   = "identity"
	gzipCoding = "gzip"
)

var errNotAcceptable = errors.New("no acceptable encoding found, supported: [gzip]")

// negotiate chooses between gzip and identity by an Accept-Encoding header. It
// returns errNotAcceptable when the header refuses both.
func negotiate(header string) (string, error) {
	type offer struct {
		coding  string
		quality float64
	}
	var offers []offer
	refused := map[string]bool{}
	for item := range strings.SplitSeq(header, ",") {
		coding, parameters, _ := strings.Cut(item, ";")
		coding = strings.ToLower(strings.TrimSpace(coding))
		if coding == "" {
			continue
		}
		quality := 1.0
		for parameter := range strings.SplitSeq(parameters, ";") {
			key, value, _ := strings.Cut(parameter, "=")
			if strings.EqualFold(strings.TrimSpace(key), "q") {
				// What is no number counts as 0: refused rather than guessed.
				quality, _ = strconv.ParseFloat(strings.TrimSpace(value), 64)
			}
		}
		if !(quality > 0) {
			refused[coding] = true
			continue
		}
		offers = append(offers, offer{coding, quality})
	}
	named := slices.ContainsFunc(offers, func(o offer) bool { return o.coding == identity })
	identityRefused := refused[identity] || refused["*"] && !named
	slices.SortStableFunc(offers, func(a, b offer) int {
		switch {
		case a.quality > b.quality:
			return -1
		case a.quality < b.quality:
			return 1
		}
		return 0
	})
	for _, o := range offers {
		switch {
		case o.coding == gzipCoding:
			return gzipCoding, nil
		case o.coding == identity || o.coding == "*" && !identityRefused:
			return identity, nil
		case o.coding == "*" && !refused[gzipCoding]:
			return gzipCoding, nil
		}
	}
	if identityRefused {
		return "", errNotAcceptable
	}
	return identity, nil
}

// decode undoes the Content-Encoding of an upload.
func decode(body io.Reader, contentEncoding string) (io.Reader, error) {
	switch strings.ToLower(strings.TrimSpace(contentEncoding)) {
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
