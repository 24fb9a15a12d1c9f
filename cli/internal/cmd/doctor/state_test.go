package doctor

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
)

// TestCountedVolumes checks the text about volumes, by their number and the number with a quota.
func TestCountedVolumes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		count, sized int
		want         string
	}{
		{1, 0, "1 volume without a quota"},
		{1, 1, "1 volume with a quota"},
		{2, 0, "2 volumes without a quota"},
		{2, 1, "2 volumes, 1 of them with a quota"},
		{2, 2, "2 volumes with a quota"},
	} {
		if got := countVolumes(volumes.Space{Count: tt.count, Sized: tt.sized}); got != tt.want {
			t.Errorf("%d volumes, %d with a quota: got %q, want %q", tt.count, tt.sized, got, tt.want)
		}
	}
}
