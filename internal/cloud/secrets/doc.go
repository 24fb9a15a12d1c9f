// Package secrets keeps secrets: values that are put into requests of sandboxes on their
// way out, and that nobody can read back.
//
// The store has them sealed with AES-256-GCM, each under its own id and version, so that
// what is copied from one record into another cannot be opened. The key comes from the
// environment, or from a file that only this user can read and that is not in the state
// directory. That protects copies and backups of the state directory. It does not protect
// against programs that run as the same user, who can read key and store alike.
package secrets
