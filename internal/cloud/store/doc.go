// Package store keeps what outlives a process: the records of local up.
package store
