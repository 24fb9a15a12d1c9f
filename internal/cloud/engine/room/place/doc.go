// Package place describes the directory of a sandbox without namespaces. The envd and the processes
// of such a sandbox run among the processes of the host, with or without restrictions, and have
// their own root directory.
package place
