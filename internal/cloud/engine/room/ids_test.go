//go:build linux

package room

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseIDMap(t *testing.T) {
	t.Parallel()
	got := parseIDMap([]byte("         0          0 4294967295\n bad line\n 1000 65536 1"))
	want := []idRange{{0, 0, 4294967295}, {1000, 65536, 1}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(idRange{})); diff != "" {
		t.Error(diff)
	}
}
