//go:build !unix

package privatedir

// Check returns nil, because the system controls the access to directories in the user's profile.
func Check(string) error { return nil }
