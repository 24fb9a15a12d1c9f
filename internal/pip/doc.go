// Package pip handles what pip handles: requirements and their markers, locks, and
// where this machine's pip finds packages. It runs nothing and uses no network.
package pip
