// Package state turns Go values into Python values and back.
package state
