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
// versions. An engine with pools needs more.
func Rights(minor int, pools bool) []Right {
	forward := []string{"get"}
	if minor == 0 || minor >= portForwardsByCreate {
		forward = append(forward, "create")
	}
	all := []Right{
		{Group: "agents.x-k8s.io", Resource: "sandboxes", Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		{Resource: "pods", Verbs: []string{"get", "list", "watch"}},
		{Resource: "pods/portforward", Verbs: forward},
		{Resource: "events", Verbs: []string{"list"}},
		{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"get", "create", "update"}},
	}
	if pools {
		const extensions = "extensions.agents.x-k8s.io"
		all = append(all,
			Right{Group: extensions, Resource: "sandboxwarmpools", Verbs: []string{"list", "create", "patch", "delete"}},
			// Some clusters let only those name an owner who may delete the object.
			Right{Group: extensions, Resource: "sandboxtemplates", Verbs: []string{"create", "delete"}},
			Right{Group: extensions, Resource: "sandboxclaims", Verbs: []string{"list", "watch", "create", "patch", "delete"}},
		)
	}
	return all
}
