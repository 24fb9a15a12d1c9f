// Package secrets keeps secrets: values that are added to requests of sandboxes on their way
// out. No client can read them.
//
// In the store, values are sealed with AES-256-GCM. Each is bound to the id and the version of
// its secret, so a sealed value that was copied to another record cannot be opened. The key is
// in the environment, or in a file outside the state directory that only this user can read.
// This protects copies and backups of the state directory. It does not protect against programs
// of the same user, which can read both the key and the store.
package secrets
