package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Pool keeps pods ready for sandboxes of one image, with the limits of [Options].
type Pool struct {
	Image *engine.Image // nil: the image of sandboxes that specify no image
	Size  int           // number of pods; 0: there is no pool
}

// poolPrefix is the beginning of the names of pools, and therefore of the names of their sandboxes.
const poolPrefix = "pool-"

// These are the kinds of objects of a pool. They belong to the extensions of agent-sandbox 0.5.
var (
	warmPools = schema.GroupVersionResource{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxwarmpools"}
	templates = schema.GroupVersionResource{Group: warmPools.Group, Version: warmPools.Version, Resource: "sandboxtemplates"}
	claims    = schema.GroupVersionResource{Group: warmPools.Group, Version: warmPools.Version, Resource: "sandboxclaims"}
)

// blueprint is the part of a sandbox that all sandboxes of a pool have in common. Only a sandbox with the
// same blueprint can be taken from the pool.
type blueprint struct {
	PodTemplate          podTemplate   `json:"podTemplate"`
	VolumeClaimTemplates []volumeClaim `json:"volumeClaimTemplates,omitempty"`
	// A NetworkPolicyManagement of "Unmanaged" makes agent-sandbox leave the network and the DNS servers
	// of the pods unchanged, so that they are the same as in other sandboxes.
	NetworkPolicyManagement string `json:"networkPolicyManagement"`
}

type poolTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              blueprint `json:"spec"`
}

type warmPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              warmPoolSpec   `json:"spec"`
	Status            warmPoolStatus `json:"status,omitempty,omitzero"`
}

type warmPoolSpec struct {
	Replicas    int           `json:"replicas"`
	TemplateRef referenceName `json:"sandboxTemplateRef"`
}

type warmPoolStatus struct {
	ReadyReplicas int `json:"readyReplicas,omitempty"`
}

type referenceName struct {
	Name string `json:"name"`
}

// poolOf returns the name of the pool for sandboxes with the options, and the blueprint of its pods. The
// name is a hash of the blueprint.
func (e *Engine) poolOf(o engine.SandboxOptions) (name string, common blueprint) {
	o.ID = "" // the pods of a pool have a hostname of their own
	made := e.newObject(o, "")
	common = blueprint{made.Spec.PodTemplate, made.Spec.VolumeClaimTemplates, "Unmanaged"}
	common.PodTemplate.ObjectMeta.Labels = map[string]string{labelInstance: e.keys.instance}
	text, err := json.Marshal(common)
	if err != nil {
		panic(err) // it contains only values that JSON supports
	}
	sum := sha256.Sum256(text)
	return e.keys.poolPrefix() + hex.EncodeToString(sum[:5]), common
}

// poolFor returns the name of the pool for a sandbox, or "" if there is none.
func (e *Engine) poolFor(o engine.SandboxOptions) string {
	if len(e.pools) == 0 {
		return ""
	}
	name, _ := e.poolOf(o)
	if _, exists := e.pools[name]; !exists {
		return ""
	}
	return name
}

// poolPrefix returns the beginning of the names of all pools of servers with the secret of k.
func (k *keys) poolPrefix() string { return poolPrefix + k.instance + "-" }

// namesSandbox reports whether name can be the name of the object of the sandbox id: the name that is
// made from the id, or a name from a pool.
func (k *keys) namesSandbox(name, id string) bool {
	own, err := nameOf(id)
	return err == nil && (name == own || strings.HasPrefix(name, k.poolPrefix()))
}

func (e *Engine) kind(kind schema.GroupVersionResource) dynamic.ResourceInterface {
	return e.client.Resource(kind).Namespace(e.options.Namespace)
}

// setPools makes the pools of the options, and removes all other pools of servers with the same secret.
// Pools outlive the engine, because these servers share them.
func (e *Engine) setPools(ctx context.Context) error {
	if len(e.options.Pools) == 0 {
		return nil
	}
	if !e.lasts() {
		return errors.New("pools need a secret, which all servers of their pods have")
	}
	e.pools = map[string]struct{}{}
	sizes, commons := map[string]int{}, map[string]blueprint{}
	for _, pool := range e.options.Pools {
		name, common := e.poolOf(engine.SandboxOptions{Image: pool.Image, Limits: e.options.Limits})
		sizes[name] += pool.Size
		commons[name] = common
	}
	maps.DeleteFunc(sizes, func(_ string, size int) bool { return size == 0 })
	list, err := e.kind(warmPools).List(ctx, metav1.ListOptions{LabelSelector: labelInstance + "=" + e.keys.instance})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster has no %s: install agent-sandbox 0.5 with its extensions: %w", warmPools.GroupResource(), err)
	}
	if err != nil {
		return fmt.Errorf("list the pools of the namespace %s: %w", e.options.Namespace, err)
	}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		if err := e.setPool(ctx, name, sizes[name], commons[name]); err != nil {
			return fmt.Errorf("make the pool %s: %w", name, err)
		}
		e.pools[name] = struct{}{}
	}
	for _, item := range list.Items {
		if _, wanted := sizes[item.GetName()]; wanted {
			continue
		}
		err := e.kind(warmPools).Delete(ctx, item.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove the pool %s: %w", item.GetName(), err)
		}
	}
	return nil
}

// setPool makes a pool. If the pool exists already, setPool changes its size. The pool owns its template,
// so the cluster removes both together.
func (e *Engine) setPool(ctx context.Context, name string, size int, common blueprint) error {
	meta := metav1.ObjectMeta{Name: name, Namespace: e.options.Namespace, Labels: map[string]string{labelInstance: e.keys.instance}}
	of := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: warmPools.GroupVersion().String(), Kind: kind}
	}
	spec := warmPoolSpec{Replicas: size, TemplateRef: referenceName{name}}
	pool, err := e.make(ctx, warmPools, &warmPool{TypeMeta: of("SandboxWarmPool"), ObjectMeta: meta, Spec: spec})
	if apierrors.IsAlreadyExists(err) {
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, size)
		pool, err = e.kind(warmPools).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return err
	}
	meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: pool.GetAPIVersion(), Kind: pool.GetKind(), Name: name, UID: pool.GetUID()}}
	_, err = e.make(ctx, templates, &poolTemplate{TypeMeta: of("SandboxTemplate"), ObjectMeta: meta, Spec: common})
	if apierrors.IsAlreadyExists(err) { // its name is a hash of its content
		return nil
	}
	return err
}

// make makes an object.
func (e *Engine) make(ctx context.Context, kind schema.GroupVersionResource, o any) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	return e.kind(kind).Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
}
