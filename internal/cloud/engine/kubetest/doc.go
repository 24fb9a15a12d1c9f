// Package kubetest gives tests a Kubernetes cluster of one node, with agent-sandbox in it. Every
// program of the cluster is real. The cluster has its own processes, mounts and network, and it
// ends with the test program, even if that is killed. README.md describes how.
package kubetest
