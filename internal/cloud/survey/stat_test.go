//go:build linux

package survey

import (
	"io/fs"
	"syscall"
)

func changeOf(info fs.FileInfo) int64 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return stat.Ctim.Nano()
}
