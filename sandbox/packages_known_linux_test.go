package sandbox

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/envd/envdtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestKnownInstallations checks that the result of a call is known until the directory of the packages changes, that it is a
// copy, and how many are kept.
func TestKnownInstallations(t *testing.T) {
	t.Parallel()
	s := newService(t)
	daemon := envdtest.Start(t, "", envdtest.User{Name: "root", Home: t.TempDir()}, envdtest.User{Name: "user", Home: t.TempDir()})
	s.raw = func(w http.ResponseWriter, r *http.Request) bool { daemon.ServeHTTP(w, r); return true }
	p, ctx, site := s.sandbox().Packages, patience.Context(t), t.TempDir()
	done := &Installation{
		Packages: []InstalledPackage{{"a", "1"}}, RestartNeeded: []string{"a"}, Renamed: []RenamedPackage{{"b", "c"}},
		Excluded: []ExcludedRequirement{{"d", "e"}}, NotImportable: []ImportFailure{{"f", "g", "h"}},
	}
	want := done.clone()
	want.RestartNeeded = nil
	left := p.look(ctx, site)
	if left.path != site || left.changed.IsZero() {
		t.Fatalf("got the state %+v of a directory", left)
	}
	p.remember("none", done, siteDirectory{})
	for range 2 {
		p.remember("k", done, left)
		got := p.known(ctx, "k")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		got.Packages[0].Name, got.Renamed[0].Import, got.Excluded[0].Name, got.NotImportable[0].Module = "x", "x", "x", "x"
	}
	for _, key := range []string{"none", "other"} {
		if got := p.known(ctx, key); got != nil {
			t.Errorf("%s: got %+v, want nothing", key, got)
		}
	}
	for i := range maxKnown {
		if n := len(p.done); n != 1+i {
			t.Fatalf("%d results are kept after %d, want all", n, 1+i)
		}
		p.remember(fmt.Sprint(i), done, left)
		if i == maxKnown-1 && len(p.done) != 1 {
			t.Errorf("%d results are kept, want at most %d", len(p.done), maxKnown)
		}
	}
	at := time.Now().Add(-time.Hour)
	must.Do(t, os.Chtimes(site, at, at))
	if got := p.known(ctx, fmt.Sprint(maxKnown-1)); got != nil {
		t.Errorf("got %+v after the directory has changed, want nothing", got)
	}
	p.remember("new", done, p.look(ctx, site))
	if p.known(ctx, "new") == nil || len(p.done) != 1 {
		t.Errorf("got %d results after the directory has changed, want the new one", len(p.done))
	}
	if got := p.look(ctx, site+"/none"); got != (siteDirectory{}) {
		t.Errorf("got the state %+v of a missing directory", got)
	}
}
