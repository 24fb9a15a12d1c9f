// Package calltest makes single system calls fail, for tests of code that must report each failure.
// It works on Linux.
package calltest
