package kubetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
	"github.com/e2bctl/e2bctl/internal/cloud/setupdir"
	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// Versions of Kubernetes and agent-sandbox. The go.mod files of the programs' modules require them.
const (
	kubernetesVersion = "v1.34.4"
	sandboxVersion    = "v0.5.6"
	version           = kubernetesVersion + "-sandbox-" + sandboxVersion
)

const (
	mainModule = "github.com/e2bctl/e2bctl"
	sources    = "internal/cloud/engine/kubetest" // directory of the programs' modules
	sandboxes  = "sigs.k8s.io/agent-sandbox"
	kinds      = "crds" // directory of the definitions of agent-sandbox's kinds
)

// The programs of a cluster that Setup builds. Each constant is the name of the program's file.
const (
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	kubelet           = "kubelet"
	sandboxController = "agent-sandbox-controller"
)

// program is a program that Setup builds from a package of a module. The module is in a directory
// below sources.
type program struct{ module, path string }

func (p program) name() string { return path.Base(p.path) }

func programs() []program {
	return []program{
		{"cluster", "k8s.io/kubernetes/cmd/" + apiServer},
		{"cluster", "k8s.io/kubernetes/cmd/" + controllerManager},
		{"cluster", "k8s.io/kubernetes/cmd/" + scheduler},
		{"cluster", "k8s.io/kubernetes/cmd/" + kubelet},
		{"controller", sandboxes + "/cmd/" + sandboxController},
	}
}

// used records the time when the programs of a version were last used. The marker file is the
// controller, because it is built last.
const used = setupdir.Marker(sandboxController)

// home returns the directory of the cluster's programs. Each version of Kubernetes and agent-sandbox
// has its own directory.
func home() (string, error) {
	cache, err := privatedir.Make("kubernetes", privatedir.Cache)
	if err != nil {
		return "", fmt.Errorf("kubernetes: the directory for its programs: %w", err)
	}
	return filepath.Join(cache, version), nil
}

// find returns the directory of the programs that Setup built.
func find() (string, error) {
	dir, err := home()
	if err != nil {
		return "", err
	}
	if err := works(dir); err != nil {
		return "", fmt.Errorf("kubernetes: its programs are not there: %w", err)
	}
	used.NoteUse(dir)
	return dir, nil
}

// works returns an error if a program or the definitions of agent-sandbox's kinds are missing in dir.
func works(dir string) error {
	for _, p := range programs() {
		if _, err := os.Stat(filepath.Join(dir, p.name())); err != nil {
			return err
		}
	}
	files, err := os.ReadDir(filepath.Join(dir, kinds))
	if err == nil && len(files) == 0 {
		err = errors.New("no kinds of agent-sandbox are defined")
	}
	return err
}

// Setup builds the programs of a cluster with the go command of this machine, unless they are already
// built. It must run in a checkout of this module. A build takes about 15 minutes of processor time.
// Setup reports the build to progress. Any number of processes may call it at the same time.
func Setup(ctx context.Context, progress io.Writer) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("kubernetes: its node runs on Linux, and this is %s", runtime.GOOS)
	}
	dir, err := home()
	if err != nil {
		return err
	}
	if works(dir) == nil {
		return nil
	}
	fmt.Fprintf(progress, "building Kubernetes %s and agent-sandbox %s, which takes some minutes\n", kubernetesVersion, sandboxVersion)
	err = used.Make(dir, progress, works, func(made, _ string) error { return build(ctx, progress, made) })
	if err != nil {
		return fmt.Errorf("kubernetes: build its programs: %w", err)
	}
	return nil
}

// build builds the programs in dir, and copies the definitions of agent-sandbox's kinds to dir.
func build(ctx context.Context, progress io.Writer, dir string) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	top, err := run(ctx, progress, here, "", "list", "-m", "-f", "{{.Dir}}", mainModule)
	if err != nil {
		return err
	}
	module := func(name string) string { return filepath.Join(top, filepath.FromSlash(sources), name) }
	for _, p := range programs() { // one after the other: the progress names them, and each needs much memory
		start := time.Now()
		// Kubernetes takes its version from the linker.
		flags := "-s -w -X k8s.io/component-base/version.gitVersion=" + kubernetesVersion
		if _, err := run(ctx, progress, module(p.module), dir, "install", "-trimpath", "-ldflags", flags, p.path); err != nil {
			return err
		}
		fmt.Fprintf(progress, "built %s in %v\n", p.name(), time.Since(start).Round(time.Second))
	}
	from, err := run(ctx, progress, module("controller"), "", "list", "-m", "-f", "{{.Dir}}", sandboxes)
	if err != nil {
		return err
	}
	return os.CopyFS(filepath.Join(dir, kinds), os.DirFS(filepath.Join(from, "k8s", "crds")))
}

// run runs the go command in a directory, and returns its output. The go command installs programs to
// bin.
func run(ctx context.Context, progress io.Writer, dir, bin string, args ...string) (string, error) {
	command, err := hostprogram.Find("go")
	if err != nil {
		return "", err
	}
	var output, said bytes.Buffer
	cmd := hostprogram.Command(ctx, dir, command, args...)
	cmd.Env = append(cmd.Env, "GOBIN="+bin, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	cmd.Stdout = &output
	cmd.Stderr = io.MultiWriter(&said, progress)
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, clip.LastLine(strings.TrimSpace(said.String()), 1<<10))
	}
	return strings.TrimSpace(output.String()), nil
}
