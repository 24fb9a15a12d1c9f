//go:build linux

package kubetest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// Cluster is a Kubernetes cluster of one node, with agent-sandbox.
type Cluster struct {
	URL       string // of the API server, on loopback of this machine
	Token     string // of a user who may do everything
	CA        []byte // certificate of the API server's authority, as PEM
	Namespace string // for the objects of the test; the namespace itself is empty at first

	client   *http.Client
	programs string // directory of the programs that Setup built
	group    string // name of the cluster's control group
	keeper   *exec.Cmd
	said     bytes.Buffer // output of the keeper and the first process
	first    int          // process id of the first process
	mu       sync.Mutex
	spawner  *spawner // guarded by mu
	last     error    // the reason why the awaited condition does not hold yet
}

// Wanted reports whether the tests were started by make check-kubernetes, as root.
func Wanted() bool { return os.Getenv("E2BCTL_TEST_KUBERNETES") != "" && os.Geteuid() == 0 }

// Need skips the test if it was not started by make check-kubernetes. If a program of the cluster is
// missing, Need skips the test, too, except on a CI machine: there Need fails the test.
func Need(t testing.TB) {
	t.Helper()
	if !Wanted() {
		t.Skip("make check-kubernetes runs this test, as root")
	}
	_, err := find()
	for _, program := range []string{etcd, containerd, "ctr", "runc", "ip", "nsenter", "/usr/lib/cni/bridge"} {
		_, missing := exec.LookPath(program)
		err = errors.Join(err, missing)
	}
	if err != nil {
		pinned.Skip(t, "run make deps-kubernetes, which installs and builds what is missing: %v", err)
	}
}

// Start starts a cluster. The cluster ends when the test ends.
func Start(t testing.TB) *Cluster {
	t.Helper()
	Need(t)
	begin := time.Now()
	c := &Cluster{Namespace: "sandboxes", group: "e2bctl-kubetest-" + strings.ToLower(rand.Text()[:8])}
	var err error
	c.programs, err = find()
	must.Do(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	c.URL = "https://" + listener.Addr().String()
	c.startKeeper(t, listener)
	t.Cleanup(func() { c.end(t) })
	c.configure(t)
	c.startPrograms(t)
	c.prepare(t)
	t.Logf("the cluster is ready after %.1f s", time.Since(begin).Seconds())
	return c
}

// startKeeper starts the keeper, a process that starts the first process of the cluster. startKeeper
// waits until the first process has made its mounts and network.
func (c *Cluster) startKeeper(t testing.TB, listener net.Listener) {
	t.Helper()
	defer func() { _ = listener.Close() }() // the keeper has a copy
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		t.Fatalf("a listener on TCP is a %T", listener)
	}
	forFirst, err := tcp.File()
	must.Do(t, err)
	defer forFirst.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	must.Do(t, err)
	c.spawner = newSpawner(conn)

	c.keeper = exec.CommandContext(context.WithoutCancel(t.Context()), "/proc/self/exe", c.group, c.programs)
	c.keeper.Args[0] = keeperName
	c.keeper.Dir = "/"
	c.keeper.Stderr = &c.said
	c.keeper.ExtraFiles = []*os.File{theirs, forFirst}
	c.keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the test alone
	output, err := c.keeper.StdoutPipe()
	must.Do(t, err)
	must.Do(t, c.keeper.Start())
	theirs.Close()
	line, _ := bufio.NewReader(output).ReadString('\n') // without a line the keeper has failed
	c.first, err = strconv.Atoi(strings.TrimSpace(line))
	if err == nil {
		err = c.send(order{})
	}
	if err != nil {
		conn.Close()
		_ = c.keeper.Wait() // what it said is the reason
		t.Fatalf("start the cluster: %v\n%s", err, c.said.Bytes())
	}
}

// end ends the cluster. If the test has failed, end logs the last lines of output of all programs.
func (c *Cluster) end(t testing.TB) {
	t.Helper()
	if t.Failed() {
		t.Logf("last error: %v", c.last)
		names, _ := filepath.Glob(c.path(logs, "*")) // the pattern is valid
		for _, name := range names {
			said, _ := os.ReadFile(name) // a log that cannot be read shows nothing
			t.Logf("%s said last:\n%s", filepath.Base(name), said[max(0, len(said)-3000):])
		}
	}
	begin := time.Now()
	c.client.CloseIdleConnections()
	c.spawner.conn.Close()
	if err := c.keeper.Wait(); err != nil {
		t.Errorf("the keeper of the cluster: %v\n%s", err, c.said.Bytes())
	}
	t.Logf("the cluster ended in %.1f s", time.Since(begin).Seconds())
}

// path returns the path that leads, on this machine, to a file of the cluster. parts are the elements
// of the file's path in the cluster.
func (c *Cluster) path(parts ...string) string {
	return filepath.Join(append([]string{"/proc", strconv.Itoa(c.first), "root"}, parts...)...)
}

func (c *Cluster) send(o order) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spawner.send(o)
}

// configure creates the keys of the cluster and the configuration of its programs.
func (c *Cluster) configure(t testing.TB) {
	t.Helper()
	authority, err := newAuthority()
	must.Do(t, err)
	all, contents := users(), files{}
	must.Do(t, contents.addSecrets(authority, all))
	contents.addConfiguration(c.group)
	for name, content := range contents {
		path := c.path(config(name))
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, content, 0o600))
	}
	c.Token, c.CA = all[0].token, contents["ca.crt"]
	roots := x509.NewCertPool()
	roots.AddCert(authority.certificate)
	c.client = &http.Client{Timeout: patience.Limit, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
	}}
}

// Kubeconfig returns the configuration of a client that has all permissions in the cluster.
func (c *Cluster) Kubeconfig() []byte {
	return kubeconfig(c.URL, c.CA, user{name: "admin", token: c.Token}, c.Namespace)
}

// startPrograms starts the programs of the cluster. It starts etcd, containerd and the API server
// without waiting. When containerd has the image Bare and the API server is ready, it starts the
// other programs of Kubernetes. It starts agent-sandbox's controller last, when the kinds of its
// objects are served.
func (c *Cluster) startPrograms(t testing.TB) {
	t.Helper()
	for _, name := range []string{etcd, containerd, apiServer} {
		must.Do(t, c.send(start(name)))
	}
	c.AddImage(t, Bare)
	c.awaitAPIServer(t)
	for _, name := range []string{controllerManager, scheduler, kubelet} {
		must.Do(t, c.send(start(name)))
	}
	c.defineKinds(t)
	must.Do(t, c.send(start(sandboxController)))
}

// defineKinds defines the kinds of agent-sandbox's objects, without the webhook of the original
// definitions. That webhook converts objects of other versions. It is not needed, because no object
// here has another version.
func (c *Cluster) defineKinds(t testing.TB) {
	t.Helper()
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	dir := filepath.Join(c.programs, kinds)
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must.Do(t, err)
		var definition map[string]any
		must.Do(t, yaml.Unmarshal(text, &definition))
		definition["spec"].(map[string]any)["conversion"] = map[string]any{"strategy": "None"}
		must.Do(t, c.Call(t.Context(), http.MethodPost, definitions, definition, nil))
	}
	c.await(t, "the kinds of agent-sandbox are served", func(ctx context.Context) error {
		var all list
		err := c.Call(ctx, http.MethodGet, definitions, nil, &all)
		for _, d := range all.Items {
			if !d.Has("Established") {
				return fmt.Errorf("%s is not served yet", d.Metadata.Name)
			}
		}
		return err
	})
}

// prepare creates the namespace of the test, and a storage class. The volumes of this class are
// directories of the node. prepare then waits until the node can run pods and the namespace has its
// default service account.
func (c *Cluster) prepare(t testing.TB) {
	t.Helper()
	type object = map[string]any
	must.Do(t, c.Call(t.Context(), http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": c.Namespace}}, nil))
	must.Do(t, c.Call(t.Context(), http.MethodPost, "/apis/storage.k8s.io/v1/storageclasses", object{
		"metadata":    object{"name": "node", "annotations": object{"storageclass.kubernetes.io/is-default-class": "true"}},
		"provisioner": "kubernetes.io/host-path",
	}, nil))
	c.Await(t, "the node is ready", "/api/v1/nodes/"+nodeName, func(o Object) bool { return o.Has("Ready") })
	c.Await(t, "the namespace has its account", "/api/v1/namespaces/"+c.Namespace+"/serviceaccounts/default", func(Object) bool { return true })
}

// AddImage adds an image of this package to the node.
func (c *Cluster) AddImage(t testing.TB, image string) {
	t.Helper()
	data, err := archive(t.Context(), image)
	must.Do(t, err)
	c.AddArchive(t, data)
}

// AddArchive adds the images in an archive to the node.
func (c *Cluster) AddArchive(t testing.TB, data []byte) {
	t.Helper()
	file := filepath.Join(imagesDir, "image.tar")
	must.Do(t, os.WriteFile(c.path(file), data, 0o600))
	c.await(t, "containerd answers", func(context.Context) error {
		_, err := os.Stat(c.path("/run/containerd/containerd.sock"))
		return err
	})
	c.Run(t, "ctr", "--namespace", "k8s.io", "images", "import", file)
	must.Do(t, os.Remove(c.path(file)))
}

// Run runs a command on the node, and returns its output.
func (c *Cluster) Run(t testing.TB, command ...string) string {
	t.Helper()
	enter := []string{"--target", strconv.Itoa(c.first), "--mount", "--net", "--pid", "--"}
	out, err := exec.CommandContext(t.Context(), "nsenter", append(enter, command...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q on the node: %v\n%s", command, err, out)
	}
	return string(out)
}

// InNetwork returns a command that runs a program of this machine in the network of the cluster, so that
// the program reaches pods by their addresses.
func (c *Cluster) InNetwork(ctx context.Context, command ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(c.first), "--net", "--"}, command...)...)
}

// RestartAPIServer kills the API server, starts it again, and waits until it is ready.
func (c *Cluster) RestartAPIServer(t testing.TB) {
	t.Helper()
	must.Do(t, c.send(order{Stop: apiServer}))
	c.client.CloseIdleConnections()
	must.Do(t, c.send(start(apiServer)))
	c.awaitAPIServer(t)
}

// KillController kills the controller of agent-sandbox. StartController starts it again.
func (c *Cluster) KillController(t testing.TB) {
	t.Helper()
	must.Do(t, c.send(order{Stop: sandboxController}))
}

// StartController starts the controller of agent-sandbox after KillController.
func (c *Cluster) StartController(t testing.TB) {
	t.Helper()
	must.Do(t, c.send(start(sandboxController)))
}

func (c *Cluster) awaitAPIServer(t testing.TB) {
	t.Helper()
	c.await(t, "the API server is ready", func(ctx context.Context) error {
		return c.Call(ctx, http.MethodGet, "/readyz", nil, nil)
	})
}

// Events returns the events of the namespace, each as its reason and message.
func (c *Cluster) Events(t testing.TB) []string {
	t.Helper()
	var events struct {
		Items []struct{ Reason, Message string }
	}
	must.Do(t, c.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/"+c.Namespace+"/events", nil, &events))
	var all []string
	for _, e := range events.Items {
		all = append(all, e.Reason+": "+e.Message)
	}
	return all
}

// Await waits until the object at a path exists and ok accepts it, and returns the object.
func (c *Cluster) Await(t testing.TB, what, path string, ok func(Object) bool) Object {
	t.Helper()
	var found Object
	c.await(t, what, func(ctx context.Context) error {
		var o Object
		if err := c.Call(ctx, http.MethodGet, path, nil, &o); err != nil {
			return err
		}
		found = o
		if !ok(o) {
			return fmt.Errorf("it is still %+v", o.Status)
		}
		return nil
	})
	return found
}

// AwaitGone waits until there is no object at a path.
func (c *Cluster) AwaitGone(t testing.TB, path string) {
	t.Helper()
	c.await(t, path+" is gone", func(ctx context.Context) error {
		err := c.Call(ctx, http.MethodGet, path, nil, nil)
		if status, ok := errors.AsType[*StatusError](err); ok && status.Code == http.StatusNotFound {
			return nil
		}
		return errors.Join(err, fs.ErrExist)
	})
}

// await waits until holds returns no error. If a program of the cluster ends in the meantime, the test
// fails at once.
func (c *Cluster) await(t testing.TB, what string, holds func(context.Context) error) {
	t.Helper()
	patience.Until(t, what, func() bool {
		must.Do(t, c.send(order{}))
		c.last = holds(t.Context())
		return c.last == nil
	})
}
