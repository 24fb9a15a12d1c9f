package kubelink

// Right is a right that the engine needs in the namespace of its sandboxes.
type Right struct {
	Group    string // of the resource; "": the core
	Resource string // with its subresource, as a Role has it
	Verbs    []string
}

// portForwardsByCreate is the minor version of Kubernetes from which on a port-forward needs the right to
// create it.
const portForwardsByCreate = 35

// Rights returns the rights that the engine needs with a minor version of Kubernetes; 0 means all
// versions.
func Rights(minor int) []Right {
	forward := []string{"get"}
	if minor == 0 || minor >= portForwardsByCreate {
		forward = append(forward, "create")
	}
	return []Right{
		{Group: "agents.x-k8s.io", Resource: "sandboxes", Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		{Resource: "pods", Verbs: []string{"get", "list", "watch"}},
		{Resource: "pods/portforward", Verbs: forward},
		{Resource: "events", Verbs: []string{"list"}},
		{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"get", "create", "update"}},
	}
}
