package engine

import "fmt"

// InUseError means that a sandbox uses more of a resource than a new limit allows.
type InUseError struct {
	Resource   string // "memory" or "disk"
	Used, Most int64  // bytes in use, and bytes of the new limit
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("it uses %d bytes of %s, and %d bytes are less", e.Used, e.Resource, e.Most)
}
