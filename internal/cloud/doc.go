// Package cloud is the local cloud: an E2B-compatible service inside one process.
package cloud
