// Package instance locks the directory of an instance, and removes the remains of an instance whose
// server has ended.
package instance
