// Package pip reads and writes data of pip: requirements with their markers, locks, and the
// settings that determine where this machine's pip finds packages. It runs no programs and uses no
// network.
package pip
