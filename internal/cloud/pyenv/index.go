package pyenv

import (
	"fmt"
	"os"
	"strings"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// unread matches a line in pip's log. The line reports a page of the index that pip could not read.
var unread = lazyregexp.New(`(?m)Could not fetch URL (\S+): (.+) - skipping$`)

// unreadIndex searches pip's log for the reason why pip could not read the index, and returns an
// error with this reason. If the log contains no reason, unreadIndex returns nil. pip's own error
// does not contain the reason: it only reports that pip found no matching distribution. unreadIndex
// ignores a page that does not exist, because this only means that the index does not have the
// package.
func unreadIndex(log string) error {
	text, err := os.ReadFile(log)
	if err != nil {
		return nil //nolint:nilerr // pip's output to stderr must suffice
	}
	for _, match := range unread().FindAllSubmatch(text, -1) {
		page, reason := string(match[1]), string(match[2])
		if strings.HasPrefix(reason, "404 ") {
			continue
		}
		return fmt.Errorf("python: pip cannot read the package index: %s: %s; check the network, and PIP_INDEX_URL, HTTPS_PROXY and PIP_CERT if this machine needs them",
			withoutCredentials(page), withoutCredentials(reason))
	}
	return nil
}
