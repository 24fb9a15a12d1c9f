// Package secrets keeps secrets: values that are put into requests of sandboxes on their
// way out. No client can read them back.
//
// In the store they are sealed with AES-256-GCM, each bound to its own id and version: a
// sealed value that was copied into another record cannot be opened. The key comes from
// the environment, or from a file outside the state directory that only this user can
// read. That protects copies and backups of the state directory. It does not protect
// against programs of the same user, which can read both key and store.
package secrets
