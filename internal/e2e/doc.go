// Package e2e contains the tests of failures: bad input, faults and ends of every
// kind. The tests use the public packages with a real local cloud.
package e2e
