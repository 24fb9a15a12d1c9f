// Package kubetest provides tests with a Kubernetes cluster of one node, with agent-sandbox. Every
// program of the cluster is the original program. The cluster has its own processes, mounts and
// network. It ends with the test program, even if the test program is killed. README.md describes how
// the cluster works.
package kubetest
