// Package kubelink connects the cloud with the Kubernetes engine, which runs sandboxes in pods. That
// engine is a Go module of its own, so that programs without it do not link the client of Kubernetes. A
// program that has the engine calls [Link] at its start.
package kubelink

import (
	"context"
	"errors"
	"log/slog"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Name is the name of the Kubernetes engine.
const Name = string(engine.Kubernetes)

// Program is the name of the command that has the Kubernetes engine.
const Program = "e2bctl-kubernetes"

// ErrNotLinked means that this program does not have the Kubernetes engine.
var ErrNotLinked = errors.New("this program does not have it, " + Program + " does")

// Options name a cluster, and describe the pods in it. The cluster, the user and the namespace come
// from the kubeconfig files that kubectl uses, or from the pod that this program runs in.
type Options struct {
	Kubeconfig   string // path of a kubeconfig file; "": the files in KUBECONFIG, or ~/.kube/config
	Context      string // name of the context; "": the current context of the kubeconfig
	Namespace    string // namespace of the sandboxes; "": the namespace of the context, or "default"
	Image        string // image of sandboxes whose template has no image; "": an image of Python
	ProgramImage string // image with the program that serves a sandbox from inside
	RuntimeClass string // runtime class of the pods; "": the default of the cluster
	// Templates are templates of sandboxes besides the built-in ones.
	Templates []Template
	// SecretFile is a file that contains a secret of at least 32 bytes. Sandboxes of a server with a
	// secret outlive the server: every server with the same secret and namespace serves them. "" means
	// no secret: the sandboxes end with the server.
	SecretFile         string
	HomeBytes          int64  // size of a sandbox's home, which outlives the pod if the sandbox is paused; 0: no home, and no pauses
	StorageClass       string // storage class of the volume with the home; "": the default of the cluster
	Pools              []Pool
	Limits             engine.Limits // limits of the pods in Pools; the cloud sets this field
	TrustNetworkPolicy bool          // true: only the policies of the cluster decide which networks pods reach
}

// Template is a template whose sandboxes use the container image Image. Nothing is built: the nodes of
// the cluster fetch the image.
type Template struct{ Name, Image string }

// BuiltIn returns the names of the built-in templates, which have no image of their own.
func BuiltIn() []string { return []string{"base", "code-interpreter-v1"} }

// Pool keeps pods ready for sandboxes of a template.
type Pool struct {
	Template string
	Size     int
}

// Check is one result of an examination of a cluster.
type Check struct {
	Name   string
	Failed bool
	Detail string
	Remedy string // how to mend the cluster; "": there is no remedy, or nothing to mend
}

// Engine opens and examines the Kubernetes engine. The package of the Kubernetes engine implements it.
type Engine interface {
	// Open opens the engine. ctx bounds only the start.
	Open(ctx context.Context, o Options, logger *slog.Logger) (engine.Engine, error)
	// Examine checks whether the engine can work on a cluster. It changes nothing there.
	Examine(ctx context.Context, o Options, logger *slog.Logger) []Check
}

// linked is the Kubernetes engine of this program; nil: the program has no such engine.
var linked Engine

// Link makes e the Kubernetes engine of this program. A program calls Link before all else.
func Link(e Engine) { linked = e }

// Linked reports whether this program has the Kubernetes engine.
func Linked() bool { return linked != nil }

// Open opens the Kubernetes engine. If this program does not have that engine, the error is
// [ErrNotLinked].
func Open(ctx context.Context, o Options, logger *slog.Logger) (engine.Engine, error) {
	if linked == nil {
		return nil, ErrNotLinked
	}
	return linked.Open(ctx, o, logger)
}

// Examine checks whether the Kubernetes engine can work on a cluster. A program without that engine must
// not call Examine.
func Examine(ctx context.Context, o Options, logger *slog.Logger) []Check {
	return linked.Examine(ctx, o, logger)
}

// LocalOption returns a local.Option that sets the options of the Kubernetes engine. Package local sets
// this variable.
var LocalOption func(Options) any
