package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Bounds of the wait for a quota: how often create tries again, and for how long.
const (
	quotaPause    = 250 * time.Millisecond
	quotaPatience = 30 * time.Second
)

// create makes the object of a sandbox. After a new quota was applied, the API server refuses objects until
// the cluster has counted the existing objects, which takes a moment. Therefore create tries again. If
// the object exists, the error includes an [existsError].
func (e *Engine) create(ctx context.Context, o engine.SandboxOptions, name string) (place, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e.newObject(o, name))
	if err != nil {
		return place{}, err
	}
	var made *unstructured.Unstructured
	waited := wait.PollUntilContextTimeout(ctx, quotaPause, quotaPatience, true, func(context.Context) (bool, error) {
		made, err = e.objects().Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
		return !isUncounted(err), nil
	})
	if err = cmp.Or(err, waited); apierrors.IsAlreadyExists(err) {
		err = errors.Join(&existsError{name}, err)
	}
	if err != nil {
		return place{name: name}, fmt.Errorf("create the object %s: %w", name, explained(err))
	}
	return place{name, made.GetUID()}, nil
}

// isUncounted reports whether an object was refused because the cluster has not counted the objects of
// a quota yet. The text is that of the API server's admission plugin ResourceQuota.
func isUncounted(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "status unknown for quota")
}
