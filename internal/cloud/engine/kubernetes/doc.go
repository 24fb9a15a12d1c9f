// Package kubernetes is the engine that runs each sandbox in a pod of a Kubernetes cluster. The
// project agent-sandbox of a Kubernetes SIG must be installed in the cluster. The engine creates
// Sandbox objects of agent-sandbox, and the controller of agent-sandbox creates and removes the
// pods.
//
// envd is the first process of the pod. It listens on a port of the pod's loopback interface. The
// server of the local cloud reaches this port only through the API server's port-forward. It needs
// no Service and no pod address, and may be outside of the cluster. The server must first
// authenticate itself to envd with a key; the pod's template contains the public half of the key
// (package tunnel). Only then does the server send the configuration, the token and the variables
// of the sandbox, so the cluster's API never receives them. If the connection breaks, envd and all
// processes continue to run, and the server connects again.
//
// If something other than the engine deletes a pod, a new pod without its files appears under the
// same name. A sandbox is therefore identified by the UID of its pod: if the pod of its name has
// another UID, the sandbox has ended.
//
// A sandbox ends with the engine. Each Sandbox object has a shutdown time in the near future, in
// case the server dies. As long as the engine runs, it moves this time forward.
//
// The package is a separate module, so that programs that import the SDK do not link the Kubernetes
// client and need not select its versions.
package kubernetes
