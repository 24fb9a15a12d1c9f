//go:build !release || linux

package linuxprogram

import "embed"

// carried is empty: a release for Linux is itself static, and is the program of containers. Only few
// use a daemon with another processor, and for that the release for the other processor serves.
var carried embed.FS
