//go:build !release

package linuxprogram

import "embed"

// carried holds the packed programs of a release build; this build has none.
var carried embed.FS
