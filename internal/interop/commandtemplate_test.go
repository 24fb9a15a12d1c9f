package interop

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// listedTemplate is a template of a list.
type listedTemplate struct {
	TemplateID string
	Aliases    []string
	Public     bool
}

func (o official) template(t *testing.T, name string) (found listedTemplate, ok bool) {
	t.Helper()
	var all []listedTemplate
	// Older commands begin with an empty line.
	text := strings.TrimSpace(o.must(t, "template", "list", "-f", "json"))
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("the list is %s: %v", text, err)
	}
	i := slices.IndexFunc(all, func(one listedTemplate) bool { return slices.Contains(one.Aliases, name) })
	if i < 0 {
		return listedTemplate{}, false
	}
	return all[i], true
}

// createTemplate builds a template from a directory, and returns its name and the
// directory.
func (o official) createTemplate(t *testing.T) (name, dir string) {
	t.Helper()
	// All clients share one cloud.
	name, dir = "command-"+strings.ToLower(rand.Text()), t.TempDir()
	for file, text := range map[string]string{
		"e2b.Dockerfile": "FROM e2bdev/base\nCOPY file /srv/file\nENV MARK=value\nWORKDIR /srv\nUSER user\n",
		"broken":         "FROM e2bdev/base\nRUN echo the reason && false\n",
		"file":           name + "\n",
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
	shown := o.must(t, "template", "create", name, "-p", dir, "-c", "sleep 1000", "--ready-cmd", "true", "--cpu-count", "2", "--memory-mb", "512")
	if !strings.Contains(shown, "COPY file /srv/file") || !strings.Contains(shown, "Build finished") {
		t.Errorf("template create showed %s", shown)
	}
	return name, dir
}

// driveTemplates builds, lists, publishes and deletes a template.
func (o official) driveTemplates(t *testing.T) {
	t.Helper()
	name, dir := o.createTemplate(t)
	t.Run("template create", func(t *testing.T) {
		id := o.create(t, name)
		if got, want := o.must(t, "sandbox", "exec", id, "cat file; pwd; echo $MARK; until pgrep sleep >/dev/null; do :; done; pgrep -c sleep"), name+"\n/srv\nvalue\n1\n"; got != want {
			t.Errorf("in a sandbox of it: got %q, want %q", got, want)
		}
		o.must(t, "sandbox", "kill", id)
	})
	t.Run("template create that fails", func(t *testing.T) {
		got := o.run(t, nil, "template", "create", name+"-broken", "-p", dir, "-d", "broken")
		if got.status != 1 || !strings.Contains(got.stdout+got.stderr, "the reason") {
			t.Errorf("got %+v, want status 1 and the reason", got)
		}
	})
	t.Run("template publish", func(t *testing.T) {
		for _, verb := range []string{"publish", "unpublish"} {
			o.must(t, "template", verb, "-y", name)
			if got, ok := o.template(t, name); !ok || got.Public != (verb == "publish") {
				t.Errorf("after %s: got %+v, %t in the list", verb, got, ok)
			}
		}
	})
	t.Run("template delete", func(t *testing.T) {
		o.must(t, "template", "delete", "-y", name)
		if got, ok := o.template(t, name); ok {
			t.Errorf("%+v is still in the list", got)
		}
	})
}
