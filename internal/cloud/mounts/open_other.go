//go:build !unix

package mounts

const directory = 0
