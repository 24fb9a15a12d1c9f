package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// TestCallsOfAGoneSandbox checks that each call of a handle says that the sandbox is gone, whether the API or
// the sandbox's port refuses it.
func TestCallsOfAGoneSandbox(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.control = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/local/features" {
			w.WriteHeader(200)
			fmt.Fprint(w, `{"resize":true}`)
		}
	}
	sb := s.sandbox()
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"Fork":        func() error { _, err := sb.Fork(ctx, nil); return err },
		"Info":        func() error { _, err := sb.Info(ctx); return err },
		"Metrics":     func() error { _, err := sb.Metrics(ctx, nil); return err },
		"Pause":       func() error { return sb.Pause(ctx, nil) },
		"SetLifetime": func() error { return sb.SetLifetime(ctx, time.Minute) },
		"Snapshot":    func() error { _, err := sb.Snapshot(ctx, nil); return err },
		"SetNetwork":  func() error { return sb.SetNetwork(ctx, Network{}) },
		"Resize":      func() error { return sb.Resize(ctx, Resources{CPUs: 1}) },
		"Resume":      func() error { return sb.Resume(ctx, nil) },
		"Logs": func() error {
			for _, err := range sb.Logs(ctx, nil) {
				return err
			}
			return nil
		},
		"Run":     func() error { _, err := sb.Commands.Run(ctx, "true", nil); return err },
		"Read":    func() error { _, err := sb.Files.Read(ctx, "a", nil); return err },
		"RunCode": func() error { _, err := sb.RunCode(ctx, "1", nil); return err },
	} {
		if err := call(); !errors.Is(err, ErrGone) {
			t.Errorf("%s: got error %v, want %v", name, err, ErrGone)
		}
	}
}

// TestErrorsThatMayMeanTheEnd checks after which errors a handle asks whether its sandbox has ended.
func TestErrorsThatMayMeanTheEnd(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox()
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	for _, test := range []struct {
		err  error
		want bool
	}{
		{ErrCommandLost, true},
		{fmt.Errorf("run: %w", ErrKernelLost), true},
		{&api.Error{Method: "GET", Path: "/files"}, true},
		{&api.Error{Method: "GET", Path: "/files", StatusCode: 500}, false},
		{errors.New("no JSON"), false},
	} {
		err := sb.explained(t.Context(), test.err)
		if errors.Is(err, ErrGone) != test.want || !errors.Is(err, test.err) {
			t.Errorf("%v: got error %v, want the same one, and that the sandbox is gone: %v", test.err, err, test.want)
		}
	}
}

// TestProgramsHaveCleanNames checks that no file of a program gets a path outside of its directory.
func TestProgramsHaveCleanNames(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox()
	for name, want := range map[string]bool{"a": true, "a/b": true, "..a": true, ".": false, "": false, "..": false, "../a": false, "/a": false, "a/": false, "a//b": false, "a/../b": false} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the check comes before any call
		_, err := sb.RunProgram(ctx, &ProgramParams{Command: "true", Files: map[string][]byte{name: nil}})
		if err == nil || strings.Contains(err.Error(), "clean path") == want {
			t.Errorf("%q: got error %v, want it to be allowed: %v", name, err, want)
		}
	}
}

// TestProgressIsTold checks how often the progress of a transfer is reported, and that its end always is.
func TestProgressIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []int64
		p := newProgress(func(n int64) { got = append(got, n) })
		p.add(0)
		p.add(1) // the first one is told at once
		p.add(2)
		<-time.After(progressInterval - time.Nanosecond)
		p.add(3)
		<-time.After(time.Nanosecond)
		p.add(4)
		p.add(5)
		p.finish()
		if want := []int64{1, 10, 15}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
