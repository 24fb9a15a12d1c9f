package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEndsMeanwhile checks calls for a sandbox that ends, or is being ended, while its state changes.
func TestEndsMeanwhile(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		state string
		do    func(s *stage, id string, resumed *int)
	}{
		"a kill does not wait": {"snapshotting", func(s *stage, id string, _ *int) {
			s.fakes.Fake(id).Die(broken)
			must.Do(s.t, s.Kill(id)) // nobody releases the snapshot
		}},
		"a call waits for the end": {"snapshotting", func(s *stage, id string, _ *int) {
			s.fakes.Fake(id).Die(broken)
			called := make(chan error, 1)
			go func() { called <- s.SetEgress(id, lifecycle.Network{}, &network.Rules{}) }()
			synctest.Wait()
			close(s.held[lifecycletest.Checkpoint])
			if err := <-called; reasonOf(err) != lifecycle.Died {
				s.t.Errorf("got error %v, want that it died", err)
			}
		}},
		"a pause that a kill ends does not resume": {"pausing", func(s *stage, id string, resumed *int) {
			must.Do(s.t, s.Kill(id))
			if *resumed != 0 {
				s.t.Error("the sandbox continued, although it must end")
			}
		}},
		"its end is known while it is killed": {"killing", func(s *stage, id string, _ *int) {
			if words := s.Ended(id); words != "it was killed" {
				s.t.Errorf("got %q", words)
			}
			close(s.held[lifecycletest.Close])
		}},
		"the engine closes it": {"running", func(s *stage, id string, _ *int) {
			s.fakes.Fake(id).Die(engine.ErrClosed)
			if _, err := s.Get(id); reasonOf(err) != lifecycle.Died || !strings.Contains(err.Error(), "it died: closed") {
				s.t.Errorf("got error %v, want that the engine closed it", err)
			}
		}},
		"it ends after a snapshot": {"running", func(s *stage, id string, _ *int) {
			hook := s.fakes.Hook
			s.fakes.Hook = func(ctx context.Context, of string, op lifecycletest.Operation) error {
				if op == lifecycletest.Save {
					s.fakes.Fake(id).Die(broken)
				}
				return hook(ctx, of, op)
			}
			made, err := s.Snapshot(s.t.Context(), id, nil)
			if err != nil || len(made.Layers) == 0 {
				s.t.Errorf("got %+v and error %v, want the snapshot that was finished", made, err)
			}
			s.Events() // it stays usable
			s.layers.Release(made.Layers...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				id, resumed := s.create(t), 0
				hook := s.fakes.Hook
				s.fakes.Hook = func(ctx context.Context, of string, op lifecycletest.Operation) error {
					if op == lifecycletest.Resume {
						resumed++
					}
					return hook(ctx, of, op)
				}
				s.bring(t, id, tt.state)
				tt.do(s, id, &resumed)
				synctest.Wait()
				if _, err := s.Get(id); reasonOf(err) == "" {
					t.Errorf("got error %v, want that it has ended", err)
				}
				_ = s.Close()
			})
		})
	}
}
