//go:build !unix

package privatedir

// Check returns nil: the system decides who can write to a directory of the user's profile.
func Check(string) error { return nil }
