package kubernetes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// watch follows the pods and objects of the engine's sandboxes and pools, the claims of pools, and the
// warnings of the namespace.
type watch struct {
	pods     watched[corev1.Pod]
	objects  watched[object]
	claims   watched[claim]
	warnings watched[corev1.Event] // by the name of the sandbox whose start they may end; it has the last one of each
	running  sync.WaitGroup
}

// warningsOnly selects the Events that are warnings.
var warningsOnly = metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning}

func newWatch(e *Engine) *watch {
	w := &watch{}
	own := metav1.ListOptions{LabelSelector: labelInstance + "=" + e.keys.instance}
	w.pods.run(e, pods, own, &w.running)
	w.warnings.key = startOf
	w.warnings.run(e, events, warningsOnly, &w.running)
	if e.lasts() {
		w.objects.news, w.objects.seen = make(chan struct{}, 1), e.takeEnd
	}
	w.objects.run(e, sandboxes, own, &w.running)
	if e.pools != nil {
		w.claims.run(e, claims, own, &w.running)
	}
	return w
}

// pod returns the pod called name, or nil if there is none. It also returns a channel that is
// closed at the next change of the pod.
func (w *watch) pod(name string) (*corev1.Pod, <-chan struct{}) { return w.pods.get(name) }

// forget removes the channels of a sandbox that has ended or was not made.
func (w *watch) forget(name string) {
	w.pods.forget(name)
	w.objects.forget(name)
	w.warnings.forget(name)
}

// wait waits until the watch has ended. The watch ends with the engine.
func (w *watch) wait() { w.running.Wait() }

// watched has the objects of one kind that the engine selects, through one watch of the API. It goes
// on after every error, as the API server may come back.
type watched[T any] struct {
	synced cache.InformerSynced // reports whether all that were there at the start have been seen
	news   chan struct{}        // receives after a change; nil: nobody takes the changes
	key    func(*T) string      // the name that the engine uses for an object, or "" if it has no use for it; nil: its own
	seen   func(*T)             // called with each version of an object that the watch sees; nil: not called

	mu      sync.Mutex
	all     map[string]*T            // by name
	changed map[string]chan struct{} // closed at the next change of the object of that name
	pending map[string]struct{}      // names of objects that changed since the last take
}

// run starts the watch of the objects with the labels and fields of selected. It ends with the engine.
func (w *watched[T]) run(e *Engine, kind schema.GroupVersionResource, selected metav1.ListOptions, running *sync.WaitGroup) {
	informer := dynamicinformer.NewFilteredDynamicInformer(e.client, kind, e.options.Namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector, o.FieldSelector = selected.LabelSelector, selected.FieldSelector
	}).Informer()
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.see(o, false) },
		UpdateFunc: func(_, o any) { w.see(o, false) },
		DeleteFunc: func(o any) { w.see(o, true) },
	})
	err = errors.Join(err, informer.SetTransform(w.keep))
	if err == nil {
		w.synced = handler.HasSynced
		err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			e.options.Logger.WarnContext(ctx, "the "+kind.Resource+" of the cluster cannot be watched at the moment", "error", err)
		})
	}
	if err != nil {
		panic(err) // only an informer that runs already, or was stopped, returns one
	}
	running.Go(func() { informer.RunWithContext(e.life) })
}

// keep returns the form in which the informer keeps an object. This is also the form in which the engine
// uses the object, so the object is in memory only once, and without the record of who changed its fields.
func (w *watched[T]) keep(o any) (any, error) {
	content, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil // it was here before
	}
	content.SetManagedFields(nil)
	if t, err := decode[T](content.Object); err == nil {
		return t, nil
	}
	return o, nil // it is not one of ours: the API server checks pods, and the definition of their kind checks Sandboxes
}

// see takes in a change of an object.
func (w *watched[T]) see(o any, deleted bool) {
	if last, unknown := o.(cache.DeletedFinalStateUnknown); unknown {
		o = last.Obj
	}
	t, ok := o.(*T)
	if !ok {
		return
	}
	if w.seen != nil {
		w.seen(t) // before it can be taken for gone
	}
	name := any(t).(metav1.Object).GetName()
	if w.key != nil {
		if name = w.key(t); name == "" {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[string]*T{}
	}
	if w.all[name] = t; deleted {
		delete(w.all, name)
	}
	w.wakeLocked(name)
	if w.news == nil {
		return
	}
	if w.pending == nil {
		w.pending = map[string]struct{}{}
	}
	w.pending[name] = struct{}{}
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// take returns the names of the objects that have changed since the last call.
func (w *watched[T]) take() map[string]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := w.pending
	w.pending = nil
	return names
}

// look returns the object of a name, which is nil if there is none.
func (w *watched[T]) look(name string) *T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[name]
}

// list returns all objects.
func (w *watched[T]) list() []*T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.all))
}

// get returns the object of a name, which is nil if there is none, and a channel that is closed at its
// next change.
func (w *watched[T]) get(name string) (*T, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed, waiting := w.changed[name]
	if !waiting {
		changed = make(chan struct{})
		if w.changed == nil {
			w.changed = map[string]chan struct{}{}
		}
		w.changed[name] = changed
	}
	return w.all[name], changed
}

// forget removes the channel of an object. It closes the channel, because a new sandbox with the name of one
// that has ended may wait for it already; that sandbox then looks again.
func (w *watched[T]) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeLocked(name)
}

// wakeLocked closes the channel of an object, if there is one.
func (w *watched[T]) wakeLocked(name string) {
	if changed, waiting := w.changed[name]; waiting {
		close(changed)
		delete(w.changed, name)
	}
}
