// Package instance locks the directory of an instance, and removes what is left of an
// instance whose server has ended.
package instance
