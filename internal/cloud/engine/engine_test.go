package engine

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEncodeConfig checks that a configuration is encoded as envd reads it, and may be as long as
// envd reads, but not longer.
func TestEncodeConfig(t *testing.T) {
	t.Parallel()
	o := SandboxOptions{Config: guest.Config{TemplateID: "t", CPUs: 3, Envs: map[string]string{"A": "b"}}}
	text, err := o.EncodeConfig()
	must.Do(t, err)
	var got guest.Config
	must.Do(t, json.Unmarshal(text, &got))
	if diff := cmp.Diff(o.Config, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	o.Config.SandboxID = strings.Repeat("x", guest.MaxConfig-len(text))
	longest, err := o.EncodeConfig()
	must.Do(t, err)
	if len(longest) != guest.MaxConfig {
		t.Errorf("got %d bytes, want %d", len(longest), guest.MaxConfig)
	}
	o.Config.SandboxID += "x"
	_, err = o.EncodeConfig()
	must.Is(t, err, ErrTooLarge)
	if want := strconv.Itoa(guest.MaxConfig + 1); !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s in it", err, want)
	}
}
