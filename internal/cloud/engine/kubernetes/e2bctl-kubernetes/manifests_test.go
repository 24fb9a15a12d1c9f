//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubetest"
	"github.com/e2bctl/e2bctl/internal/cloud/linuxprogram"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/packaging"
	"github.com/e2bctl/e2bctl/internal/patience"
)

const serverImage = "e2bctl.test/e2bctl:1"

// addServerImage builds the image as make image does, for this processor, and adds it to the node.
func addServerImage(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	server := filepath.Join(t.TempDir(), "e2bctl-kubernetes")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", server, ".")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, text)
	}
	program, err := linuxprogram.Make(t.Context(), io.Discard, runtime.GOARCH)
	must.Do(t, err)
	image := packaging.Image{
		Name: serverImage, Servers: []string{server}, Programs: []string{program}, Certificates: "/etc/ssl/certs/ca-certificates.crt",
	}
	var data bytes.Buffer
	must.Do(t, image.WriteTar(&data))
	c.AddArchive(t, data.Bytes())
}

// applier applies objects to a cluster, as kubectl apply --server-side does. Unknown fields are errors.
type applier struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

func newApplier(t *testing.T, c *kubetest.Cluster) applier {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig())
	must.Do(t, err)
	client, err := dynamic.NewForConfig(config)
	must.Do(t, err)
	found, err := discovery.NewDiscoveryClientForConfig(config)
	must.Do(t, err)
	return applier{client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))}
}

func (a applier) apply(t *testing.T, o *unstructured.Unstructured, dryRun ...string) error {
	t.Helper()
	kind := o.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	must.Do(t, err)
	text, err := o.MarshalJSON()
	must.Do(t, err)
	force := true
	_, err = a.client.Resource(mapping.Resource).Namespace(o.GetNamespace()).Patch(t.Context(), o.GetName(), "application/apply-patch+yaml", text,
		metav1.PatchOptions{FieldManager: "test", Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun})
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind.Kind, o.GetName(), err)
	}
	return nil
}

// manifests returns the objects that e2bctl prints.
func (u *user) manifests(t *testing.T, flags ...string) (all []*unstructured.Unstructured) {
	t.Helper()
	stdout, stderr, status := u.run(t.Context(), t, append([]string{"serve", "--manifests", "--program-image", serverImage, "--image", kubetest.Python}, flags...)...)
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(stdout), 4<<10)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return all
		}
		must.Do(t, err)
		all = append(all, o)
	}
}

// namesAPIServer tells the server where the API server is. No kube-proxy runs in the cluster of tests, so
// that the address of the service "kubernetes" leads nowhere.
func namesAPIServer(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if o.GetKind() != "Deployment" {
		return
	}
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	must.Do(t, err)
	containers[0].(map[string]any)["env"] = []any{
		map[string]any{"name": "KUBERNETES_SERVICE_HOST", "value": kubetest.NodeAddress},
		map[string]any{"name": "KUBERNETES_SERVICE_PORT", "value": kubetest.APIPort},
	}
	must.Do(t, unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"))
}

// buildExample builds examples/cluster, and returns the path of the program.
func buildExample(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "cluster")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/e2bctl/e2bctl/examples/cluster")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, text)
	}
	return program
}

// TestManifests puts a server into a cluster as a user does, and works with its sandboxes.
func TestManifests(t *testing.T) {
	kubetest.Need(t)
	c := kubetest.Start(t)
	c.AddImage(t, kubetest.Python)
	addServerImage(t, c)
	u, a := newUser(t), newApplier(t, c)
	objects := u.manifests(t, "--home", "16MiB", "--template", "tools="+kubetest.Python, "--template", "other=e2bctl.test/none:1", "--pool", "base=1")
	for _, o := range objects {
		if o.GetKind() == "Namespace" {
			must.Do(t, a.apply(t, o))
		}
	}
	for _, o := range slices.Concat(objects, u.manifests(t, "--keep-secrets", "--trust-network-policy", "--runtime-class", "gvisor", "--home", "1GiB", "--storage-class", "fast")) {
		must.Do(t, a.apply(t, o, metav1.DryRunAll))
	}
	var key string
	for _, o := range objects {
		namesAPIServer(t, o)
		must.Do(t, a.apply(t, o))
		if o.GetName() == "e2bctl-keys" {
			key, _, _ = unstructured.NestedString(o.Object, "stringData", "keys")
		}
	}
	checkRights(t, c)
	u.env = append(u.env, "E2B_API_KEY="+strings.TrimSpace(key))
	address := addressOf(t, c, "")
	run := func(want string, command ...string) string {
		t.Helper()
		url := "http://" + address
		var out, text bytes.Buffer
		cmd := c.InNetwork(patience.Context(t), command...)
		cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = append(u.env, "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url), &out, &text, t.TempDir()
		if err := cmd.Run(); err != nil || !strings.Contains(out.String(), want) {
			t.Fatalf("%q: %v, %q, want %q; %s", command, err, out.String(), want, text.String())
		}
		return strings.TrimSpace(out.String())
	}
	say := func(want string, args ...string) string {
		t.Helper()
		return run(want, append([]string{"e2bctl"}, args...)...)
	}
	say("tools", "template", "ls")
	id := say("", "create", "--timeout", "10m", "--template", "tools")
	say("42", "code", "run", "--sandbox", id, "-c", "6 * 7")
	t.Log(run("the squares 4, 9, 36 have the sum 49\nended the sandbox\n", buildExample(t)))
	say("", "exec", id, "--", "sh", "-c", "echo before > /home/user/file; echo before > /tmp/file; test ! -e /var/run/secrets/kubernetes.io")

	// The pool of base has a pod for the next sandbox.
	var list struct{ Items []kubetest.Object }
	patience.Until(t, "a pod of the pool is ready", func() bool {
		must.Do(t, c.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/e2bctl-sandboxes/pods", nil, &list))
		return slices.ContainsFunc(list.Items, func(o kubetest.Object) bool {
			return strings.HasPrefix(o.Metadata.Name, "pool-") && o.Has("Ready")
		})
	})
	say("42", "run", "--", "sh", "-c", "case $(hostname) in pool-*) echo 42; esac")

	// Another pod of the server, with the same seed, serves the same sandbox.
	pods := "/api/v1/namespaces/e2bctl/pods"
	must.Do(t, c.Call(t.Context(), http.MethodDelete, pods+"?labelSelector=app.kubernetes.io/name=e2bctl", nil, nil))
	address = addressOf(t, c, address)
	say("before", "exec", id, "--", "cat", "/tmp/file")

	// A paused sandbox has no pod. Another server resumes it, with the files of its home.
	say("", "pause", id)
	c.AwaitGone(t, "/api/v1/namespaces/e2bctl-sandboxes/pods/sandbox-"+id)
	must.Do(t, c.Call(t.Context(), http.MethodDelete, pods+"?labelSelector=app.kubernetes.io/name=e2bctl", nil, nil))
	address = addressOf(t, c, address)
	say(id, "ls", "--state", "paused")
	say("", "resume", id)
	say("before", "exec", id, "--", "sh", "-c", "cat /home/user/file; test ! -e /tmp/file")
	say("", "pause", id)
	say("", "kill", id)
	c.AwaitGone(t, "/api/v1/namespaces/e2bctl-sandboxes/persistentvolumeclaims/home-sandbox-"+id)

	// The whole again, with new keys, cannot take the seed from the sandboxes that run.
	err := errors.New("it has no seed")
	for _, o := range u.manifests(t) {
		if o.GetName() == "e2bctl-seed" {
			err = a.apply(t, o, metav1.DryRunAll)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("another seed: %v", err)
	}
}

// checkRights checks that the server in the cluster has the rights of the engine with pools among the
// sandboxes, and nowhere else.
func checkRights(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	for _, right := range kubelink.Rights(0, true) {
		resource, subresource, _ := strings.Cut(right.Resource, "/")
		for _, verb := range right.Verbs {
			for namespace, want := range map[string]bool{"e2bctl-sandboxes": true, "e2bctl": false} {
				var review struct{ Status struct{ Allowed bool } }
				must.Do(t, c.Call(t.Context(), http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", map[string]any{"spec": map[string]any{
					"user":               "system:serviceaccount:e2bctl:e2bctl",
					"resourceAttributes": map[string]any{"namespace": namespace, "verb": verb, "group": right.Group, "resource": resource, "subresource": subresource},
				}}, &review))
				if review.Status.Allowed != want {
					t.Errorf("%s %s in %s: allowed %t", verb, right.Resource, namespace, !want)
				}
			}
		}
	}
}

// addressOf waits until a server other than the one at old is ready behind the Service, and returns the
// address to which the Service leads.
func addressOf(t *testing.T, c *kubetest.Cluster, old string) (address string) {
	t.Helper()
	patience.Until(t, "the Service has a server", func() bool {
		var endpoints struct {
			Subsets []struct {
				Addresses []struct{ IP string }
				Ports     []struct{ Port int }
			}
		}
		err := c.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/e2bctl/endpoints/e2bctl", nil, &endpoints)
		if err != nil || len(endpoints.Subsets) == 0 || len(endpoints.Subsets[0].Addresses) == 0 {
			return false
		}
		first := endpoints.Subsets[0]
		address = net.JoinHostPort(first.Addresses[0].IP, strconv.Itoa(first.Ports[0].Port))
		return address != old
	})
	return address
}
