//go:build release && !linux

package linuxprogram

import "embed"

// carried contains the packed programs, which `make release` writes to this directory.
//
//go:embed linux_amd64.gz linux_arm64.gz
var carried embed.FS
