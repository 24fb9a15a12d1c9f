package sandbox

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
)

const (
	metadataHeader = "X-Metadata-"

	maxMetadataKey   = 246
	maxMetadata      = 4096
	metadataOverhead = 9 // the daemon adds these bytes to every key
)

// setMetadata adds the labels of a file to the header of an upload. It refuses labels that the
// daemon would refuse or silently drop.
func (f *Files) setMetadata(h http.Header, metadata map[string]string) error {
	if len(metadata) == 0 {
		return nil
	}
	if err := f.sb.needs("metadata of files", 0, 6, 2); err != nil {
		return err
	}
	size := 0
	for key, value := range metadata {
		name := http.CanonicalHeaderKey(metadataHeader + key)
		_, twice := h[name]
		switch {
		case key == "" || len(key) > maxMetadataKey || strings.ContainsFunc(key, notToken):
			return invalid(fmt.Sprintf("the metadata key %q is not 1 to %d letters, digits and !#$%%&'*+-.^_`|~", clip.Text(key, 64), maxMetadataKey))
		case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }) || strings.TrimSpace(value) != value:
			return invalid(fmt.Sprintf("the metadata value of %q is not printable ASCII without space around it", key))
		case twice:
			return invalid(fmt.Sprintf("the metadata key %q is there twice: case does not count", key))
		}
		if size += metadataOverhead + len(key) + len(value); size > maxMetadata {
			return invalid(fmt.Sprintf("more than %d bytes of metadata", maxMetadata))
		}
		h.Set(name, value)
	}
	return nil
}

// notToken reports whether c is invalid in a header's name.
func notToken(c rune) bool {
	return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
