package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestGetOrCreate checks which sandbox has a name afterwards, and the errors of one that is of another kind.
func TestGetOrCreate(t *testing.T) {
	t.Parallel()
	const made = `POST /v2/sandboxes {"templateID":"code-interpreter-v1"`
	long := strings.Repeat("n", maxName)
	for name, tt := range map[string]struct {
		name   string // "": n
		listed string // sandboxes with the name
		opts   []CreateOption
		want   string // how the request begins that makes or wakes it; "": none
		has    string // in that request
		is     error
	}{
		"none":              {want: made, has: `"autoPause":true`},
		"none with labels":  {opts: []CreateOption{WithMetadata(map[string]string{"a": "b"})}, want: made, has: `"metadata":{"a":"b","e2bctl.name":"n"}`},
		"none, to end":      {opts: []CreateOption{WithExpiry(Expiry{Then: ThenKill})}, want: made, has: `"autoPause":false`},
		"one":               {listed: `{"sandboxID":"i2","templateID":"t"}`, want: "POST /v2/sandboxes/i2/connect "},
		"the oldest":        {listed: `{"sandboxID":"i3","startedAt":"2026-01-02T03:04:06Z"},{"sandboxID":"i2","startedAt":"2026-01-02T03:04:05Z"},{"sandboxID":"i4","startedAt":"2026-01-02T03:04:07Z"}`, want: "POST /v2/sandboxes/i2/connect "},
		"same template":     {listed: `{"sandboxID":"i2","templateID":"t","alias":"a"}`, opts: []CreateOption{WithTemplate("a:tag")}, want: "POST /v2/sandboxes/i2/connect "},
		"another template":  {listed: `{"sandboxID":"i2","templateID":"t","alias":"a"}`, opts: []CreateOption{WithTemplate("b")}, is: api.ErrConflict},
		"another image":     {listed: `{"sandboxID":"i2","templateID":"t"}`, opts: []CreateOption{WithImage("python:3")}, is: api.ErrConflict},
		"same resources":    {listed: `{"sandboxID":"i2","cpuCount":2,"memoryMB":512,"diskSizeMB":9}`, opts: []CreateOption{WithResources(Resources{1.5, 512 << 20, 9 << 20})}, want: "POST /v2/sandboxes/i2/connect "},
		"another memory":    {listed: `{"sandboxID":"i2","cpuCount":2,"memoryMB":512}`, opts: []CreateOption{WithResources(Resources{MemoryBytes: 513 << 20})}, is: api.ErrConflict},
		"no name":           {name: "-", is: api.ErrInvalidArgument},
		"longest name":      {name: long, want: made, has: long},
		"too long a name":   {name: long + "n", is: api.ErrInvalidArgument},
		"a name in Latin-1": {name: "\xe9", is: api.ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.control = func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && r.URL.Path == "/v2/sandboxes" {
					if label := r.URL.Query().Get("metadata"); !strings.HasPrefix(label, NameLabel+"=") {
						t.Errorf("asked for the sandboxes with %q", label)
					}
					w.WriteHeader(200)
					fmt.Fprintf(w, "[%s]", tt.listed)
				}
			}
			asked := tt.name
			switch asked {
			case "":
				asked = "n"
			case "-":
				asked = ""
			}
			sb, err := s.client().GetOrCreate(t.Context(), asked, tt.opts...)
			if !errors.Is(err, tt.is) || (err == nil) != (tt.want != "") {
				t.Fatalf("got error %v, want %v", err, tt.is)
			}
			if n := s.seen("POST"); err != nil {
				if n != 0 {
					t.Errorf("got %q, want no change", s.calls)
				}
				return
			}
			defer sb.Close()
			request := s.calls[len(s.calls)-1]
			if s.seen("POST") != 1 || !strings.HasPrefix(request, tt.want) || !strings.Contains(request, tt.has) || sb.Owned() {
				t.Errorf("got %q, want %s with %s; owned: %v", s.calls, tt.want, tt.has, sb.Owned())
			}
			if sb.config.uniqueLabel != "" && tt.listed == "" || sb.config.metadata != nil && tt.listed == "" {
				t.Error("a second sandbox with its configuration would have its name")
			}
		})
	}
}

// TestGetOrCreateAgain checks that a name that another program took is looked for again, for some time.
func TestGetOrCreateAgain(t *testing.T) {
	t.Parallel()
	for taken, want := range map[int32]int32{1: 2, maxNameAttempts - 1: maxNameAttempts, maxNameAttempts: maxNameAttempts} {
		synctest.Test(t, func(t *testing.T) {
			s := newPipedService(t)
			var attempts atomic.Int32
			s.control = func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodGet && r.URL.Path == "/v2/sandboxes":
					w.WriteHeader(200)
					_, _ = io.WriteString(w, "[]")
				case r.Method == http.MethodPost && !strings.HasSuffix(r.URL.Path, "/features") && attempts.Add(1) <= taken:
					w.WriteHeader(409)
					_, _ = io.WriteString(w, `{"code":409,"message":"taken"}`)
				}
			}
			sb, err := s.client().GetOrCreate(t.Context(), "n")
			if attempts.Load() != want || (err == nil) != (taken < want) || err != nil && !errors.Is(err, errNameTaken) {
				t.Errorf("taken %d times: got error %v after %d attempts, want %d", taken, err, attempts.Load(), want)
			}
			if err == nil {
				_ = sb.Close()
			}
		})
	}
}

// TestDiffering checks each resource below, at and above that of a sandbox, and one that is not asked for.
func TestDiffering(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	info := &Info{CPUs: 2, MemoryBytes: 4 * mib, DiskBytes: 6 * mib}
	for r, want := range map[Resources]bool{
		{}: false, {2, 4 * mib, 6 * mib}: false, {CPUs: 1}: true, {CPUs: 1.1}: false, {CPUs: 2.1}: true, {MemoryBytes: 4*mib - 1}: true, {MemoryBytes: 5*mib - 1}: false,
		{MemoryBytes: 5 * mib}: true, {DiskBytes: 6*mib - 1}: true, {DiskBytes: 7*mib - 1}: false, {DiskBytes: 7 * mib}: true, {MemoryBytes: mib - 1}: false,
	} {
		if got := r.differ(info); got != want {
			t.Errorf("%+v: got %v, want %v", r, got, want)
		}
	}
	for template, want := range map[string]bool{"t": true, "a": true, "a:tag": true, "t:tag": true, "b": false, "a:": true, "": false, "ab": false} {
		if got := isOf(&Info{TemplateID: "t", Alias: "a"}, template); got != want {
			t.Errorf("template %q: got %v, want %v", template, got, want)
		}
	}
	if got := templateName(&Info{TemplateID: "t"}); got != "t" {
		t.Errorf("the template without an alias is named %q", got)
	}
	if got := templateName(&Info{TemplateID: "t", Alias: "a"}); got != "a" {
		t.Errorf("the template is named %q, want its alias", got)
	}
}

// TestGetOrCreateOfOneThatEnds checks that a sandbox that ends after it was found is looked for again, and one is created
// then; that the pauses between the attempts grow; and that the end of the context ends them.
func TestGetOrCreateOfOneThatEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		listed, limit int // how often it is listed; after how many milliseconds the context ends
		took          time.Duration
		want          error
	}{
		"at once":         {0, 0, 0, nil},
		"once":            {1, 0, nameAttemptPause, nil},
		"three times":     {3, 0, 6 * nameAttemptPause, nil},
		"always":          {100, 0, 45 * nameAttemptPause, ErrGone},
		"until the limit": {100, 70, 70 * time.Millisecond, ErrGone},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newPipedService(t)
			var lists atomic.Int32
			s.control = func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodGet && r.URL.Path == "/v2/sandboxes":
					w.WriteHeader(http.StatusOK)
					if int(lists.Add(1)) <= tt.listed {
						_, _ = io.WriteString(w, `[{"sandboxID":"i2","templateID":"t"}]`)
						return
					}
					_, _ = io.WriteString(w, "[]")
				case strings.HasSuffix(r.URL.Path, "/i2/connect"):
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, `{"code":404,"message":"gone"}`)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.limit > 0 {
				defer time.AfterFunc(time.Duration(tt.limit)*time.Millisecond, cancel).Stop()
			}
			begun := time.Now()
			sb, err := s.client().GetOrCreate(ctx, "n")
			if took := time.Since(begun); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || took != tt.took {
				t.Errorf("%s: got error %v after %v, want %v after %v", name, err, took, tt.want, tt.took)
			}
			if err == nil {
				must.Do(t, sb.Close())
			}
		})
	}
}
