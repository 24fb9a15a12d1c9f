// Package cli is the command e2bctl.
package cli
