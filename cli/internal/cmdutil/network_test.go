package cmdutil

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/sandbox"
)

func TestHostHeaders(t *testing.T) {
	t.Parallel()
	var got hostHeaders
	for _, value := range []string{"a.test:X-Key=secret:k", "a.test:Authorization=Bearer secret:token", "*.b.test:X=a=b:secret:c"} {
		if err := got.Set(value); err != nil {
			t.Errorf("%s: got error %v", value, err)
		}
	}
	want := hostHeaders{
		"a.test":   {"X-Key": sandbox.SecretRef("k"), "Authorization": "Bearer " + sandbox.SecretRef("token")},
		"*.b.test": {"X": "a=b:secret:c"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, value := range []string{"", "a.test", "a.test:X", "a.test=X", ":X=1", "a.test:=1", "a.test:1:X=1", "a.test:X=secret:"} {
		if err := new(hostHeaders).Set(value); err == nil {
			t.Errorf("%q: got no error", value)
		}
	}
}
