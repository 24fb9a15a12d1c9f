package engine_test

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

func TestPromises(t *testing.T) {
	t.Parallel()
	p := engine.Everything()
	p.Lack("the moon is new", engine.Volumes, engine.Mounts)
	for _, f := range engine.Features {
		want := map[engine.Feature]string{engine.Volumes: "the moon is new", engine.Mounts: "the moon is new"}[f]
		if why, there := p[f]; why != want || !there {
			t.Errorf("%s: got %q, %v, want %q", f, why, there, want)
		}
	}
	if len(p) != len(engine.Features) {
		t.Errorf("%d features are promised, and there are %d", len(p), len(engine.Features))
	}
}
