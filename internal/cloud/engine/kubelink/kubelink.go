// Package kubelink connects the cloud with the engine of pods. That engine is a module of its own, so
// that other programs do not link the client of Kubernetes. A program that has the engine calls
// [Link] at its start.
package kubelink

import (
	"context"
	"errors"
	"log/slog"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Name is the name of the engine.
const Name = string(engine.Kubernetes)

// Program is the name of the command that has the engine.
const Program = "e2bctl-kubernetes"

// ErrNotLinked means that this program does not have the engine.
var ErrNotLinked = errors.New("this program does not have it, " + Program + " does")

// Options name a cluster, and describe the pods in it. The cluster, the user and the namespace come
// from the kubeconfig files that kubectl uses, or from the pod that this program runs in.
type Options struct {
	Kubeconfig   string // file; "": the files in KUBECONFIG, or ~/.kube/config
	Context      string // "": the current one of the kubeconfig
	Namespace    string // "": that of the context, or "default"
	Image        string // image of sandboxes whose template has none; "": an image of Python
	ProgramImage string // image with the program that serves a sandbox from inside
	RuntimeClass string // "": the default of the cluster
	// Templates are templates of sandboxes besides the built-in ones.
	Templates []Template
	// SecretFile is a file with at least 32 bytes. Sandboxes outlive a server with one: every server with
	// the same secret and namespace serves them. "": they end with the server.
	SecretFile         string
	HomeBytes          int64  // size of the home that outlives the pod of a paused sandbox; 0: no home, and no pauses
	StorageClass       string // of the volume with the home; "": the default of the cluster
	Pools              []Pool
	Limits             engine.Limits // of pods in pools; the cloud sets them
	TrustNetworkPolicy bool          // the policies of the cluster alone decide which networks pods reach
}

// Template is a template whose sandboxes have an image. Nothing is built: the nodes of the cluster fetch
// the image.
type Template struct{ Name, Image string }

// BuiltIn returns the names of the templates that exist without an image of their own.
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
	Remedy string // "" if there is none, or nothing to mend
}

// Engine is implemented by the package of the engine.
type Engine interface {
	// Open opens the engine. ctx bounds only the start.
	Open(ctx context.Context, o Options, logger *slog.Logger) (engine.Engine, error)
	// Examine checks whether the engine can work on a cluster. It changes nothing there.
	Examine(ctx context.Context, o Options, logger *slog.Logger) []Check
}

// linked is the engine of this program; nil if it has none.
var linked Engine

// Link makes e the engine of this program. A program calls it before all else.
func Link(e Engine) { linked = e }

// Linked reports whether this program has the engine.
func Linked() bool { return linked != nil }

// Open opens the engine. If this program does not have it, the error is [ErrNotLinked].
func Open(ctx context.Context, o Options, logger *slog.Logger) (engine.Engine, error) {
	if linked == nil {
		return nil, ErrNotLinked
	}
	return linked.Open(ctx, o, logger)
}

// Examine checks whether the engine can work on a cluster. A program without the engine must not call it.
func Examine(ctx context.Context, o Options, logger *slog.Logger) []Check {
	return linked.Examine(ctx, o, logger)
}

// LocalOption returns a local.Option that sets the options of the engine. Package local sets it.
var LocalOption func(Options) any
