// Package kubernetes is the engine that runs each sandbox in a pod of a cluster. The SIG's
// agent-sandbox must be installed there: the engine makes its Sandbox objects, and its controller
// makes and removes the pods.
//
// envd is the first process of the pod. It listens on a port of the pod's loopback interface, which
// the server reaches through the API server's port-forward alone: no Service and no pod address is
// needed, and the server may be outside of the cluster. envd answers a server only after this has
// proved itself with a key whose public half stands in the pod's template (package tunnel). The
// configuration, the token and the variables of a sandbox travel after that, so the cluster's API
// never has them. If the connection breaks, envd and all processes run on, and the server connects
// again.
//
// A pod that is deleted from outside comes back under the same name, without its files. So a sandbox
// is one pod, by its UID; a pod with another UID is a sandbox that has ended.
//
// With [Options].HomeBytes, a sandbox has a volume as its home, and can be suspended: its object then has
// no pod and keeps the volume. The UID of the pod changes only with a resume. While a server
// resumes the sandbox, an annotation has the time at which the server began, and the sandbox is still
// paused for all other servers. If the server dies, another server suspends the sandbox again.
//
// Without [Options].Secret, a sandbox ends with the engine. In case the server dies, each Sandbox
// object has a time of shutdown in the near future, which the engine moves on as long as it lives.
//
// With a secret, sandboxes outlive the engine, and every engine with the same secret and namespace
// serves them, also at the same time. All keys are derived from the secret: the engines know their
// objects by a label, prove themselves to the same pods, and open the sealed part of the records. The
// record of a sandbox stands in annotations of its object, as soon as the sandbox can be used. They
// have the UID of the pod, the start and the end, and for people the template and the metadata.
// Everything else, with variables and tokens, is sealed for that sandbox in that pod. The time of
// shutdown is then the real end, so it passes without a server, too. An engine that finds an object
// does this:
//
//   - with a record: it adopts the sandbox. If the pod is gone, the sandbox ends with this reason, and
//     the object is removed.
//   - with a record of a paused sandbox: it adopts the sandbox as paused. There is no time of shutdown.
//   - without a record: nothing. Another server creates that sandbox, or died meanwhile. A server that
//     creates moves the time of shutdown on every few seconds.
//   - with a record that it cannot open: nothing, except a warning. The time of shutdown ends it.
//   - with the label of another secret: it does not see the object.
//
// A request with an idempotency key makes a sandbox whose id is a keyed hash of that key, so a server
// that is asked again while another one still creates it is refused its object. It then waits: the record
// means that it adopts the sandbox, and an object that is gone means that it makes the sandbox itself. A
// server that ends a sandbox first writes the reason to an annotation, from which the others have it.
//
// A Lease elects one of the servers. It removes the objects of servers that died: those without a record
// whose time of shutdown does not move, and those with a reason of their end that nobody has removed.
// Without the right to Leases, they stay until their time of shutdown.
//
// A pool keeps pods ready. It is a SandboxWarmPool of agent-sandbox. Its name is a hash of the properties
// that all its pods have in common. If a requested sandbox has the same properties, apart from its id, the
// engine takes a sandbox from the pool by a SandboxClaim. Otherwise, it makes a Sandbox object. The claim
// has the name that the object would have, so it excludes other servers that make the same sandbox. As
// soon as the sandbox is taken, it gets its labels and is detached from the claim, and the claim is
// removed. From then on, the sandbox differs from other sandboxes only in the hostname and in the name of
// its object and pod.
//
// The package is a module of its own, so that the programs of those who import the SDK neither link
// nor choose versions for the client of Kubernetes.
package kubernetes
