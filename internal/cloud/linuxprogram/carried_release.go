//go:build release

package linuxprogram

import "embed"

// carried holds the packed programs, which make release puts here.
//
//go:embed linux_amd64.gz linux_arm64.gz
var carried embed.FS
