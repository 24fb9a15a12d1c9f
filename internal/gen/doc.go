// Package gen holds the generated protobuf and Connect code of the daemon inside
// a sandbox. Its sources are in internal/proto; make generate writes it.
package gen
