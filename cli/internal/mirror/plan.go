package mirror

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
)

// Kinds of a [Change].
const (
	Create = "create"
	Update = "update"
	Remove = "remove"
)

// Change is one change of the destination.
type Change struct {
	Type string `json:"type"` // Create, Update or Remove
	Name string `json:"name"` // the path relative to the directory, with slashes
	Size int64  `json:"size"` // the size of a file that is sent, in bytes
}

// plan has the changes that make the destination equal to the source.
type plan struct {
	changes []Change // the changes, in the order of their names
	send    []string // entries of the source, each directory before its content
	clear   []string // the entries that must be removed before those in send, each directory after its content
	remove  []string // the entries that only the destination has, each directory after its content
}

// newPlan compares two trees. The plan removes the entries that the source does not have, but only
// if remove is set. It never removes a directory that contains ignored entries.
func newPlan(from, to tree, remove bool) (*plan, error) {
	p, send := &plan{}, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		e := from[name]
		there, exists := to[name]
		switch {
		case e.kind == unsendable, exists && e.equals(there):
			continue
		case exists && there.keeps && !e.isDir():
			return nil, &fs.PathError{Op: "replace", Path: name, Err: fmt.Errorf("%w: something in it is ignored, and stays", syscall.EISDIR)}
		case exists && there.isDir() && !e.isDir() && !remove:
			return nil, &fs.PathError{Op: "replace", Path: name, Err: fmt.Errorf("%w: --delete removes it with its contents", syscall.EISDIR)}
		case exists && there.isDir() != e.isDir():
			p.clear = append(p.clear, name)
		}
		c := Change{Type: Create, Name: name}
		if exists {
			c.Type = Update
		}
		if e.kind == 0 {
			c.Size = e.size
		}
		p.changes = append(p.changes, c)
		// Directories are sent together with their content, because that changes their times.
		for dir := name; dir != "."; dir = path.Dir(dir) {
			send[dir] = true
		}
	}
	if remove {
		for _, name := range slices.Sorted(maps.Keys(to)) {
			if _, ok := from[name]; !ok && !to[name].keeps {
				p.changes = append(p.changes, Change{Type: Remove, Name: name})
				p.remove = append(p.remove, name)
			}
		}
	}
	p.send = slices.Sorted(maps.Keys(send))
	p.removeFirst()
	slices.Reverse(p.clear)
	slices.Reverse(p.remove)
	slices.SortStableFunc(p.changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	return p, nil
}

// removeFirst moves entries from remove to clear if they are inside a directory in clear, because
// that directory must be empty before it is removed.
func (p *plan) removeFirst() {
	if len(p.clear) == 0 {
		return
	}
	cleared := map[string]bool{}
	for _, name := range p.clear {
		cleared[name] = true
	}
	var rest []string
	for _, name := range p.remove { // directories come before their content
		if cleared[path.Dir(name)] {
			cleared[name] = true
		} else {
			rest = append(rest, name)
		}
	}
	p.clear, p.remove = slices.Sorted(maps.Keys(cleared)), rest
}
