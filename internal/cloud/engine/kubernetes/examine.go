package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"
)

// Kinds of objects that only an examination reads or makes. Nothing is stored of a review.
var (
	namespaces     = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	runtimeClasses = schema.GroupVersionResource{Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses"}
	storageClasses = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}
	reviews        = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
)

// installIt is the remedy for a cluster without agent-sandbox, or with another version.
const installIt = "install agent-sandbox 0.5"

// Examine implements [kubelink.Engine].
func (Linked) Examine(ctx context.Context, o kubelink.Options, logger *slog.Logger) []kubelink.Check {
	logTo(logger)
	c, err := find(o)
	if err != nil {
		return []kubelink.Check{{Name: "cluster", Failed: true, Detail: err.Error(), Remedy: "kubectl config get-contexts lists the contexts of a kubeconfig"}}
	}
	c.config.Timeout = openTimeout
	x, err := newExamination(c)
	if err != nil {
		return []kubelink.Check{{Name: "cluster", Failed: true, Detail: err.Error()}}
	}
	first := x.cluster()
	if first.Failed {
		return []kubelink.Check{first}
	}
	checks := []kubelink.Check{first, x.namespace(ctx), x.agentSandbox(), x.rights(ctx), x.runtimeClass(ctx, o.RuntimeClass), x.pools(ctx)}
	if o.HomeBytes > 0 {
		checks = append(checks, x.storageClass(ctx, o.StorageClass))
	}
	return checks
}

// examination asks a cluster whether the engine can work there.
type examination struct {
	of        cluster
	discovery *discovery.DiscoveryClient
	client    dynamic.Interface
	minor     int // of the cluster's version; 0: unknown
}

func newExamination(c cluster) (x *examination, err error) {
	x = &examination{of: c}
	if x.discovery, err = discovery.NewDiscoveryClientForConfig(c.config); err != nil {
		return nil, err
	}
	x.client, err = dynamic.NewForConfig(c.config)
	return x, err
}

// cluster asks for the version of the cluster.
func (x *examination) cluster() kubelink.Check {
	c := kubelink.Check{Name: "cluster", Detail: cmp.Or(x.of.context, "the one of this pod") + " at " + x.of.config.Host}
	started := time.Now()
	found, err := x.discovery.ServerVersion()
	if err != nil {
		return failed(c, err)
	}
	x.minor, _ = strconv.Atoi(strings.TrimRight(found.Minor, "+")) // 0: unknown
	c.Detail += fmt.Sprintf(", Kubernetes %s, answered in %v", found.GitVersion, time.Since(started).Round(time.Millisecond))
	return c
}

// namespace looks for the namespace of sandboxes.
func (x *examination) namespace(ctx context.Context) kubelink.Check {
	name := x.of.namespace
	c := kubelink.Check{Name: "namespace", Detail: name}
	_, err := x.client.Resource(namespaces).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err): // the other checks say more
		c.Detail += ", which this user may not read"
	case apierrors.IsNotFound(err):
		c.Failed, c.Detail, c.Remedy = true, name+" does not exist", "kubectl create namespace "+name+", or choose another with --namespace"
	case err != nil:
		return failed(c, err)
	}
	return c
}

// agentSandbox asks for the versions of agent-sandbox's objects.
func (x *examination) agentSandbox() kubelink.Check {
	c := kubelink.Check{Name: "agent-sandbox"}
	groups, err := x.discovery.ServerGroups()
	if err != nil {
		return failed(c, err)
	}
	var versions []string
	for _, group := range groups.Groups {
		if group.Name != sandboxes.Group {
			continue
		}
		for _, version := range group.Versions {
			versions = append(versions, version.Version)
		}
	}
	const remedy = installIt + ", from github.com/kubernetes-sigs/agent-sandbox"
	switch {
	case len(versions) == 0:
		c.Failed, c.Detail, c.Remedy = true, "the cluster has no "+sandboxes.GroupResource().String(), remedy
	case !slices.Contains(versions, sandboxes.Version):
		c.Failed, c.Detail, c.Remedy = true, fmt.Sprintf("the cluster has %s in %s, want %s", sandboxes.Group, strings.Join(versions, ", "), sandboxes.Version), remedy
	default:
		c.Detail = sandboxes.Group + " " + strings.Join(versions, ", ")
	}
	return c
}

// rights asks whether this user has the rights that the engine needs.
func (x *examination) rights(ctx context.Context) kubelink.Check {
	c := kubelink.Check{Name: "rights"}
	var missing []string
	asked := 0
	for _, right := range kubelink.Rights(x.minor, false) {
		var verbs []string
		for _, verb := range right.Verbs {
			asked++
			may, err := x.may(ctx, right, verb)
			if err != nil {
				return failed(c, err)
			}
			if !may {
				verbs = append(verbs, verb)
			}
		}
		if len(verbs) > 0 {
			missing = append(missing, strings.TrimSuffix(strings.Join(verbs, ", ")+" "+right.Resource+"."+right.Group, "."))
		}
	}
	if len(missing) > 0 {
		c.Failed, c.Detail = true, "missing in "+x.of.namespace+": "+strings.Join(missing, "; ")
		c.Remedy = "bind this user to a Role of the namespace with these verbs and resources"
		return c
	}
	c.Detail = fmt.Sprintf("all %d in %s", asked, x.of.namespace)
	return c
}

// pools lists the pools of the namespace.
func (x *examination) pools(ctx context.Context) kubelink.Check {
	c := kubelink.Check{Name: "pools"}
	list, err := x.client.Resource(warmPools).Namespace(x.of.namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.Detail = "the cluster has no " + warmPools.GroupResource().String() + ": agent-sandbox was installed without its extensions"
		return c
	case apierrors.IsForbidden(err):
		c.Detail = "this user may not list them"
		return c
	case err != nil:
		return failed(c, err)
	case len(list.Items) == 0:
		c.Detail = "none"
		return c
	}
	var texts []string
	for _, item := range list.Items {
		pool, err := decode[warmPool](item.Object)
		if err != nil {
			return failed(c, err)
		}
		texts = append(texts, fmt.Sprintf("%s, %d of %d pods ready", pool.Name, pool.Status.ReadyReplicas, pool.Spec.Replicas))
		if pool.Status.ReadyReplicas < pool.Spec.Replicas {
			c.Remedy = "kubectl -n " + x.of.namespace + " get pods,events shows why pods of a pool are not ready, if they do not become so"
		}
	}
	c.Detail = strings.Join(texts, "; ")
	return c
}

// may asks for one right.
func (x *examination) may(ctx context.Context, r kubelink.Right, verb string) (bool, error) {
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": reviews.GroupVersion().String(), "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{
			"namespace": x.of.namespace, "verb": verb, "group": r.Group, "resource": resource, "subresource": subresource,
		}},
	}}
	answer, err := x.client.Resource(reviews).Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	allowed, _, err := unstructured.NestedBool(answer.Object, "status", "allowed")
	return allowed, err
}

// runtimeClass looks for the runtime class of pods, and lists the others.
func (x *examination) runtimeClass(ctx context.Context, want string) kubelink.Check {
	c, list := x.class(ctx, "runtime class", runtimeClasses, want)
	if list == nil {
		return c
	}
	have := namesOf(list)
	c.Detail += "; " + have
	if want != "" && !hasName(list, want) {
		c.Failed, c.Detail, c.Remedy = true, want+" does not exist; "+have, "choose another with --runtime-class, or leave it out"
	}
	return c
}

// defaultClass is the annotation of the storage class that volumes without a class have.
const defaultClass = "storageclass.kubernetes.io/is-default-class"

// storageClass looks for the storage class of homes; "" is the cluster's default.
func (x *examination) storageClass(ctx context.Context, want string) kubelink.Check {
	c, list := x.class(ctx, "storage class", storageClasses, want)
	if list == nil || want != "" && hasName(list, want) {
		return c
	}
	if want == "" {
		for _, item := range list {
			if item.GetAnnotations()[defaultClass] == "true" {
				c.Detail += ", " + item.GetName()
				return c
			}
		}
	}
	c.Failed, c.Detail, c.Remedy = true, cmp.Or(want, "a default")+" does not exist; "+namesOf(list), "choose another with --storage-class, or leave out --home"
	return c
}

// class begins the check of a class of the cluster, and lists all classes of its kind. The list is nil
// if the check ends with that.
func (x *examination) class(ctx context.Context, name string, kind schema.GroupVersionResource, want string) (kubelink.Check, []unstructured.Unstructured) {
	c := kubelink.Check{Name: name, Detail: cmp.Or(want, "the cluster's default")}
	list, err := x.client.Resource(kind).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		c.Detail += "; this user may not list the others"
		return c, nil
	}
	if err != nil {
		return failed(c, err), nil
	}
	return c, slices.Concat([]unstructured.Unstructured{}, list.Items)
}

func hasName(list []unstructured.Unstructured, name string) bool {
	return slices.ContainsFunc(list, func(o unstructured.Unstructured) bool { return o.GetName() == name })
}

// namesOf returns the names of the classes that the cluster has, for a person.
func namesOf(list []unstructured.Unstructured) string {
	if len(list) == 0 {
		return "the cluster has none"
	}
	var names []string
	for _, o := range list {
		names = append(names, o.GetName())
	}
	return "the cluster has " + strings.Join(names, ", ")
}

// failed returns a check that failed with an error.
func failed(c kubelink.Check, err error) kubelink.Check {
	c.Failed, c.Remedy = true, remedyOf(err)
	c.Detail = strings.TrimPrefix(c.Detail+": "+err.Error(), ": ")
	return c
}

// remedyOf returns the remedy for an error of requests to the API server, or "".
func remedyOf(err error) string {
	if _, isNet := errors.AsType[net.Error](err); isNet {
		return "kubectl version tries the same: check the address in the kubeconfig, the VPN and the proxy variables"
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return "the cluster refuses the credentials of the kubeconfig, which may have expired: log in to it again"
	case apierrors.IsForbidden(err):
		return "ask for a role that may do this"
	}
	return ""
}
