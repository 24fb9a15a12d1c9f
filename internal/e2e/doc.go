// Package e2e contains the tests of failures: bad input, faults and ends of
// every kind, through the public packages against a real local cloud.
package e2e
