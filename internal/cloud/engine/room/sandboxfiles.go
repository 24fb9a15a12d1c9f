//go:build linux

package room

import (
	"bytes"
	"os"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/place"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// sandboxFiles describe the files of one sandbox, and the directories of the host that it shows.
type sandboxFiles struct {
	root    *place.Root // the root directory of a sandbox without namespaces
	written *os.File    // the file system that the sandbox writes to; nil without namespaces
	notes   []string
	hidden  []string // trees that are not visible in the sandbox
	unshown *unshown // files to hide in the trees of the sandbox; nil if there are none
	lost    []string // trees that are only in the layers and saved files of the sandbox
}

// note records the properties of a file system that was built for the sandbox.
func (f *sandboxFiles) note(built wire.Message) {
	f.notes, f.lost = append(f.notes, built.Notes...), built.Trees
}

// replace makes written the file system that the sandbox writes to, in place of another one.
func (f *sandboxFiles) replace(written *os.File) {
	f.written.Close()
	f.written = written
}

// hide makes a file with the list of the files that the sandbox must hide from now on.
func (f *sandboxFiles) hide(list *unshown) (*os.File, error) {
	f.unshown = list
	return memoryFile(list.list)
}

// outdated reports whether the files that must be hidden now are visible in the sandbox, or the list
// of these files is no longer known.
func (f *sandboxFiles) outdated(now *unshown) bool {
	return f.unshown != nil && (now.err != nil || !bytes.Equal(f.unshown.list, now.list))
}

// close frees the memory of the files that the sandbox wrote.
func (f *sandboxFiles) close() {
	if f.written != nil {
		f.written.Close()
	}
}
