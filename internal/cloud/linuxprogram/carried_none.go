//go:build !release

package linuxprogram

import "embed"

// carried are the packed programs of a release build; this is none.
var carried embed.FS
