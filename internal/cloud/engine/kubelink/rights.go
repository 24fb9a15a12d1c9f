package kubelink

// Right is a right that the Kubernetes engine needs in the namespace of its sandboxes: verbs on a
// resource.
type Right struct {
	Group    string // API group of the resource; "": the core group
	Resource string // name with the subresource, in the form of a Role, such as "pods/portforward"
	Verbs    []string
}

// portForwardsByCreate is the first minor version of Kubernetes in which a port-forward needs the verb
// create. All later versions need it, too.
const portForwardsByCreate = 35

// Rights returns the rights that the Kubernetes engine needs if minor is the minor version of Kubernetes.
// If minor is 0, the rights are enough for all versions. An engine with pools needs more rights; pools
// selects whether Rights returns these, too.
func Rights(minor int, pools bool) []Right {
	forward := []string{"get"}
	if minor == 0 || minor >= portForwardsByCreate {
		forward = append(forward, "create")
	}
	all := []Right{
		{Group: "agents.x-k8s.io", Resource: "sandboxes", Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		{Resource: "pods", Verbs: []string{"get", "list", "watch"}},
		{Resource: "pods/portforward", Verbs: forward},
		{Resource: "events", Verbs: []string{"list", "watch"}},
		{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"get", "create", "update"}},
	}
	if pools {
		const extensions = "extensions.agents.x-k8s.io"
		all = append(all,
			Right{Group: extensions, Resource: "sandboxwarmpools", Verbs: []string{"list", "create", "patch", "delete"}},
			// Some clusters let a client name an object's owner only if the client may delete the object.
			Right{Group: extensions, Resource: "sandboxtemplates", Verbs: []string{"create", "delete"}},
			Right{Group: extensions, Resource: "sandboxclaims", Verbs: []string{"list", "watch", "create", "patch", "delete"}},
		)
	}
	return all
}
