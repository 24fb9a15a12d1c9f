package api

import (
	"strings"
	"testing"
)

// A null would become an item without an id, which callers could not tell from a real one.
func TestListsRefuseNull(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer string
		list   func(*Client) error
	}{
		"teams":         {`[null]`, func(c *Client) error { _, err := c.Teams.List(t.Context()); return err }},
		"keys":          {`[null]`, func(c *Client) error { _, err := c.Keys.List(t.Context()); return err }},
		"tags":          {`[null]`, func(c *Client) error { _, err := c.Templates.Tags(t.Context(), "a"); return err }},
		"volumes":       {`[null]`, func(c *Client) error { _, err := c.Volumes.List(t.Context()); return err }},
		"sandboxes":     {`[null]`, func(c *Client) error { _, err := c.Sandboxes.ListPage(t.Context(), nil); return err }},
		"secrets":       {`[null]`, func(c *Client) error { _, err := c.Secrets.ListPage(t.Context(), nil); return err }},
		"snapshots":     {`[null]`, func(c *Client) error { _, err := c.Snapshots.ListPage(t.Context(), nil); return err }},
		"templates":     {`[null]`, func(c *Client) error { _, err := c.Templates.ListPage(t.Context(), nil); return err }},
		"builds":        {`{"builds":[null]}`, func(c *Client) error { _, err := c.Templates.Get(t.Context(), "t1", nil); return err }},
		"log of builds": {`{"logs":[null]}`, func(c *Client) error { _, err := c.Templates.BuildLogs(t.Context(), "t1", "b1", nil); return err }},
		"state of builds": {`{"logEntries":[null]}`, func(c *Client) error {
			_, err := c.Templates.BuildStatus(t.Context(), "t1", "b1", nil)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := answering(t, 200, test.answer)
			if err := test.list(c); err == nil || !strings.Contains(err.Error(), "null") {
				t.Errorf("got %v, want an error about a null", err)
			}
		})
	}
}
