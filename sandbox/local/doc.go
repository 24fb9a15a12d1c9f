// Package local starts an E2B-compatible cloud inside this process and hands
// back the options that point package sandbox at it.
package local
