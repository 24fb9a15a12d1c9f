//go:build !release

package linuxprogram

import "embed"

// carried contains the packed programs of a release build. In this build, it is empty.
var carried embed.FS
