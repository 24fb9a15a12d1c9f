// Testdeps fetches everything that the tests need from the network, for `make deps`, so that no test uses the
// network. It fetches nothing twice.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubetest"
	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/kerneltest"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
	"github.com/e2bctl/e2bctl/internal/e2e"
	"github.com/e2bctl/e2bctl/internal/interop"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/internal/realservice"
)

// sets returns the sets of pinned packages of all Go packages whose tests need such sets.
func sets() []pinned.Set {
	return slices.Concat(interop.Sets(), e2e.Sets, []pinned.Set{kerneltest.Packages, realservice.Packages, fullList})
}

func main() {
	var more extra
	flag.BoolVar(&more.engines, "engines", false, "prepare also what only the tests of engines need")
	flag.BoolVar(&more.kubernetes, "kubernetes", false, "prepare also what only the tests with a Kubernetes cluster need")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := prepare(ctx, os.Stderr, more)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// extra selects dependencies that only some tests need.
type extra struct{ engines, kubernetes bool }

// atOnce is the number of sets that are fetched at the same time. Most of the time, each waits for the network.
const atOnce = 4

// rank is 1 for a set that needs the prepared Python, and 0 for the others.
func rank(s pinned.Set) int {
	if slices.ContainsFunc(s.Commands, func(command []string) bool { return command[0] == pinned.Interpreter }) {
		return 1
	}
	return 0
}

// prepare fetches as much as it can. If something cannot be fetched, it continues. It returns all
// errors.
func prepare(ctx context.Context, output io.Writer, more extra) error {
	offerNewest(ctx)
	all := sets()
	// The sets that need no Python come first, because they need not wait for it.
	slices.SortStableFunc(all, func(a, b pinned.Set) int { return cmp.Compare(rank(a), rank(b)) })
	failed := make([]error, len(all))
	var missing error
	ensured := make(chan struct{})
	var group errgroup.Group
	group.SetLimit(atOnce)
	group.Go(func() error {
		defer close(ensured)
		_, missing = pyenv.Ensure(ctx, output)
		return nil
	})
	for i, set := range all {
		group.Go(func() error {
			if rank(set) == 1 {
				<-ensured
			}
			failed[i] = set.Fetch(ctx, output)
			return nil
		})
	}
	_ = group.Wait() // the errors are in missing and failed
	err := errors.Join(missing, errors.Join(failed...))
	if more.engines {
		_, wasm := wasmenv.Setup(ctx, output, "")
		_, gvisor := gvisorenv.Setup(ctx, output, "")
		err = errors.Join(err, wasm, gvisor)
	}
	if more.kubernetes {
		err = errors.Join(err, kubetest.Setup(ctx, output))
	}
	return err
}
