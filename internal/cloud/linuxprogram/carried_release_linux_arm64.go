//go:build release

package linuxprogram

import "embed"

// carried contains the packed program for the other processor. Containers on this processor run the
// program of the server, which is static in a release.
//
//go:embed linux_amd64.gz
var carried embed.FS
