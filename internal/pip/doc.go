// Package pip knows what pip knows: requirements and their markers, locks, and
// where this machine's pip finds packages. It runs nothing and asks nobody.
package pip
