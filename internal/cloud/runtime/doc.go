// Package runtime isolates sandboxes: the room they live in, the start of the
// agent, namespaces, users and limits.
package runtime
