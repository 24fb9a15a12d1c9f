// Package secrets keeps secrets. A secret is a value that the cloud adds to requests when they
// leave a sandbox. No client can read the values.
//
// In the store, values are sealed with AES-256-GCM. Each value is bound to the id and the version
// of its secret, so a sealed value that was copied to another record cannot be opened. The key is
// in the environment, or in a file that is outside the state directory and that only this user can
// read. This protects copies and backups of the state directory: they do not reveal the values. It
// does not protect against programs of the same user, because such programs can read both the key
// and the store.
package secrets
