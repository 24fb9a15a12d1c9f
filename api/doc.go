// Package api is the control plane of an E2B service as typed calls: create,
// list, connect to and kill sandboxes. It knows nothing of what runs inside a
// sandbox; see package sandbox for that.
package api
