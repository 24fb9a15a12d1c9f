// Command e2bctl-kubernetes is e2bctl with the engine that runs sandboxes in the pods of a cluster.
// e2bctl starts it in its own place for --engine kubernetes.
package main

import (
	"os"

	"github.com/e2bctl/e2bctl/cli"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubernetes"
)

func main() {
	kubelink.Link(kubernetes.Linked{})
	os.Exit(cli.Main())
}
