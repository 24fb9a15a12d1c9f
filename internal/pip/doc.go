// Package pip handles pip's data: requirements and their markers, locks, and the
// places where this machine's pip finds packages. It runs nothing and uses no
// network.
package pip
