package kubernetes

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// watch follows the pods of the engine's sandboxes, through one watch of the API. It continues
// after every error, because the API server may become reachable again.
type watch struct {
	mu      sync.Mutex
	pods    map[string]*corev1.Pod   // by name
	changed map[string]chan struct{} // by the name of the pod: closed at the next change of that pod
	running sync.WaitGroup
}

func newWatch(e *Engine) *watch {
	w := &watch{pods: map[string]*corev1.Pod{}, changed: map[string]chan struct{}{}}
	informer := dynamicinformer.NewFilteredDynamicInformer(e.client, pods, e.options.Namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = labelInstance + "=" + e.instance
	}).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.see(o, false) },
		UpdateFunc: func(_, o any) { w.see(o, false) },
		DeleteFunc: func(o any) { w.see(o, true) },
	})
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			e.options.Logger.WarnContext(ctx, "the pods of the cluster cannot be watched at the moment", "error", err)
		})
	}
	if err != nil {
		panic(err) // only an informer that runs already has one
	}
	w.running.Go(func() { informer.RunWithContext(e.life) })
	return w
}

// see takes in a change of a pod.
func (w *watch) see(o any, deleted bool) {
	if last, unknown := o.(cache.DeletedFinalStateUnknown); unknown {
		o = last.Obj
	}
	content, ok := o.(*unstructured.Unstructured)
	if !ok {
		return
	}
	pod, err := decode[corev1.Pod](content.Object)
	if err != nil {
		return // it is not one of ours: the API server checks pods
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if deleted {
		delete(w.pods, pod.Name)
	} else {
		w.pods[pod.Name] = pod
	}
	if changed, waiting := w.changed[pod.Name]; waiting {
		close(changed)
		delete(w.changed, pod.Name)
	}
}

// pod returns the pod called name, or nil if there is none. It also returns a channel that is
// closed at the next change of the pod.
func (w *watch) pod(name string) (*corev1.Pod, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed, waiting := w.changed[name]
	if !waiting {
		changed = make(chan struct{})
		w.changed[name] = changed
	}
	return w.pods[name], changed
}

// forget removes the channel of a pod for which nobody waits any longer.
func (w *watch) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.changed, name)
}

// wait waits until the watch has ended. The watch ends with the engine.
func (w *watch) wait() { w.running.Wait() }
