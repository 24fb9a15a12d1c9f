package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/must"
)

// getentScript plays getent. It knows the names below four domains, and fails for those below a fifth.
const getentScript = `#!/bin/sh
[ "$1" = ahosts ] && [ $# = 2 ] || exit 9
case "$2" in
49983-e2bctl.here.test|49983-e2bctl.localhost) printf '127.0.0.1 STREAM x\n127.0.0.1 DGRAM\n\n::1 RAW\n' ;;
49983-e2bctl.there.test) printf '127.0.0.1 STREAM x\n192.0.2.1 STREAM\n' ;;
49983-e2bctl.odd.test) echo 'no address' ;;
49983-e2bctl.broken.test) exit 3 ;;
*) exit 2 ;;
esac
`

// withGetent makes getent a program that knows the names of the tests, or removes it.
func withGetent(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if script != "" {
		must.Do(t, os.WriteFile(filepath.Join(dir, "getent"), []byte(script), 0o755))
	}
}

// TestCheckNames checks the report about the names of sandboxes, by the addresses that the system has for them.
func TestCheckNames(t *testing.T) {
	fresh(t)
	withGetent(t, getentScript)
	const programs, system = "programs that know only E2B_DOMAIN, ", "apt-get install libnss-myhostname mends it"
	for _, tt := range []struct {
		domain, status, detail string
		hints                  int // 1: about programs; 2: also about localhost
	}{
		{"here.test:1", checkOK, "names below here.test lead to this machine", 0},
		{"localhost:1", checkOK, "names below localhost lead to this machine", 0},
		{"there.test:1", checkWarning, "49983-e2bctl.there.test leads to 192.0.2.1, not to this machine", 1},
		{"odd.test:1", checkWarning, "49983-e2bctl.odd.test leads to no, not to this machine", 1},
		{"broken.test:1", checkWarning, "49983-e2bctl.broken.test does not resolve: getent: exit status 3", 1},
		{"notlocalhost:1", checkWarning, "49983-e2bctl.notlocalhost does not resolve: the system knows no such name", 1},
		{"e2b.localhost:1", checkWarning, "49983-e2bctl.e2b.localhost does not resolve: the system knows no such name", 2},
		{"here.test", checkFailed, "address here.test: missing port in address", 0},
	} {
		got := checkNames(t.Context(), tt.domain)
		hints := 0
		if strings.HasPrefix(got.Hint, programs) {
			hints++
		}
		if strings.Contains(got.Hint, "; "+system) {
			hints++
		}
		if got.Name != "names" || got.Status != tt.status || got.Detail != tt.detail || hints != tt.hints {
			t.Errorf("%s: got %+v, want %+v", tt.domain, got, tt)
		}
	}
	// The domain localhost itself has the hint about it, too.
	withGetent(t, "#!/bin/sh\nexit 2\n")
	if got := checkNames(t.Context(), "localhost:1"); got.Status != checkWarning || !strings.Contains(got.Hint, system) {
		t.Errorf("localhost without names: got %+v", got)
	}
	withGetent(t, "")
	if got := checkNames(t.Context(), "invalid:1"); got.Status != checkWarning || strings.Contains(got.Detail, "getent") {
		t.Errorf("without getent: got %+v", got)
	}
}

// TestNamesOfTheRunningCloud checks that the names of the running local cloud are checked, if it has a domain.
func TestNamesOfTheRunningCloud(t *testing.T) {
	fresh(t)
	withGetent(t, getentScript)
	for domain, want := range map[string]string{"here.test:2": "names below here.test lead to this machine", "": "names below localhost lead to this machine"} {
		end := startCloud(t, localcloud.Record{URL: "http://127.0.0.1:1", Domain: domain})
		if got := checkNames(t.Context(), "localhost:1"); got.Status != checkOK || got.Detail != want {
			t.Errorf("%q: got %+v, want %q", domain, got, want)
		}
		end()
	}
}
