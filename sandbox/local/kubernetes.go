package local

import "github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"

// The engine of pods is only in the command e2bctl-kubernetes, so programs cannot choose it, and its
// options are not a part of this package's API.
func init() {
	kubelink.LocalOption = func(o kubelink.Options) any { return Option(func(s *settings) { s.kubernetes = o }) }
}
