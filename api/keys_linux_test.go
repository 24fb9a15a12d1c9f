package api_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestKeysOfALocalCloud walks a key from its creation to its end.
func TestKeysOfALocalCloud(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	with := func(key api.Key) *api.Client {
		c, err := api.NewClient(api.WithAPIKey(key), api.WithBaseURL(cloud.URL()))
		must.Do(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := with(cloud.APIKey())
	teams, err := c.Teams.List(t.Context())
	if err != nil || len(teams) != 1 {
		t.Fatalf("got teams %+v, %v, want one", teams, err)
	}
	if team := teams[0]; team.Name != "local" || !team.IsDefault || team.APIKey == "" {
		t.Errorf("got the team %+v, want one that is called local and has a key", team)
	}
	before, err := c.Keys.List(t.Context())
	must.Do(t, err)
	made, err := c.Keys.Create(t.Context(), "ci")
	must.Do(t, err)
	value := string(made.Key)
	if m := made.Mask; !strings.HasPrefix(value, m.Prefix+m.First) || !strings.HasSuffix(value, m.Last) || len(value) != len(m.Prefix)+m.ValueLength {
		t.Errorf("the mask %+v is not that of the key", m)
	}
	must.Do(t, c.Keys.Rename(t.Context(), made.ID, "deploy"))
	if _, err := with(made.Key).Sandboxes.ListPage(t.Context(), nil); err != nil {
		t.Errorf("the new key is refused: %v", err)
	}
	after, err := c.Keys.List(t.Context())
	if err != nil || len(after) != len(before)+1 {
		t.Fatalf("got %d keys, %v, want %d", len(after), err, len(before)+1)
	}
	at := slices.IndexFunc(after, func(k api.APIKey) bool { return k.ID == made.ID })
	if at < 0 {
		t.Fatalf("got %+v, want the key among them", after)
	}
	if k := after[at]; k.Name != "deploy" || k.Key != "" || k.LastUsed == nil {
		t.Errorf("got %+v, want the key under its new name, used and without its value", k)
	}
	must.Do(t, c.Keys.Delete(t.Context(), made.ID))
	for what, err := range map[string]error{"Delete": c.Keys.Delete(t.Context(), made.ID), "Rename": c.Keys.Rename(t.Context(), made.ID, "x")} {
		if !errors.Is(err, api.ErrNotFound) {
			t.Errorf("%s of a key that is gone: got %v, want api.ErrNotFound", what, err)
		}
	}
	if _, err := with(made.Key).Sandboxes.ListPage(t.Context(), nil); !errors.Is(err, api.ErrUnauthorized) {
		t.Errorf("with a deleted key: got %v, want api.ErrUnauthorized", err)
	}
}
