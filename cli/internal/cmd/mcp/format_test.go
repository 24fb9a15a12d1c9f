package mcp

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/diff"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEdits compares the change of each client's configuration with testdata: a file that is not
// there, one with other servers and comments, one that has a server of that name.
// UPDATE_SCRIPTS=1 rewrites the results.
func TestEdits(t *testing.T) {
	t.Parallel()
	s := server{Command: "/usr/local/bin/e2bctl", Args: []string{"mcp", "--domain", "<a & b>"}, Variables: []string{"E2B_API_KEY", "E2B_DOMAIN"}}
	for _, name := range clientNames() {
		c, _ := findClient(name)
		for _, state := range []string{"new", "others", "existing"} {
			file := filepath.Join("testdata", name, state)
			before, err := os.ReadFile(file + ".in")
			if state != "new" {
				must.Do(t, err)
			}
			made, err := changed(c.format, before, "e2bctl", s)
			must.Do(t, err)
			shown := made.diffText("FILE", before, s)
			for result, got := range map[string][]byte{file + ".out": made.text, file + ".diff": []byte(shown)} {
				if os.Getenv("UPDATE_SCRIPTS") != "" {
					must.Do(t, os.WriteFile(result, got, 0o644))
				}
				want, err := os.ReadFile(result)
				must.Do(t, err)
				if diff := cmp.Diff(string(want), string(got)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", result, diff)
				}
			}
			if strings.Contains(shown, "not-to-be-shown") {
				t.Errorf("%s: the change shows a secret:\n%s", file, shown)
			}
			if made.existed != (state == "existing") {
				t.Errorf("%s: the server existed: %v", file, made.existed)
			}
			again, err := changed(c.format, made.text, "e2bctl", s)
			must.Do(t, err)
			if string(again.text) != string(made.text) || !again.existed {
				t.Errorf("%s: the same again changes\n%s", file, diff.Diff("once", made.text, "twice", again.text))
			}
		}
	}
}

// Texts in forms that people and editors write.
func TestLayouts(t *testing.T) {
	t.Parallel()
	jsonc, tables := &jsonFormat{servers: "s", reference: "$%s"}, &tomlFormat{servers: "s"}
	const member = "\"e\": {\n%\"command\": \"c\",\n%\"args\": []\n"
	at := func(indent, unit string) string { return strings.ReplaceAll(member, "%", indent+unit) + indent + "}" }
	const table = "[s.e]\ncommand = 'c'\nargs = []\n"
	for _, c := range []struct {
		format        format
		before, after string
	}{
		{jsonc, " \n", "{\n  \"s\": {\n    " + at("    ", "  ") + "\n  }\n}\n"},
		{jsonc, "{ /* none */ }", "{ /* none */\n  \"s\": {\n    " + at("    ", "  ") + "\n  }\n}"},
		{jsonc, `{"s":{}}`, "{\"s\":{\n  " + at("  ", "  ") + "\n}}"},
		{jsonc, `{"s":{"a":1}}`, `{"s":{"a":1, "e": {"command":"c","args":[]}}}`},
		{jsonc, `{"s":{"a":1,}}`, `{"s":{"a":1, "e": {"command":"c","args":[]},}}`},
		{jsonc, `{"s":{"e":0}}`, `{"s":{"e":{"command":"c","args":[]}}}`},
		{jsonc, `{"s":{"e":{"args":[],"command":"c"}}}`, `{"s":{"e":{"args":[],"command":"c"}}}`},
		{jsonc, `{"s":{"e":{"args":[], /* mine */ "command":"c",}}}`, `{"s":{"e":{"args":[], /* mine */ "command":"c",}}}`},
		{jsonc, "{\n\"a\": 1\n}", "{\n\"a\": 1,\n\"s\": {\n  " + at("  ", "  ") + "\n}\n}"},
		{jsonc, "{\n\t\"s\": {\"a\": 1,\n\t\t\"b\": 2}}\n", "{\n\t\"s\": {\"a\": 1,\n\t\t\"b\": 2,\n\t\t" + at("\t\t", "\t") + "\n\t}}\n"},
		{jsonc, "{\r\n \"a\": 1\r\n}\r\n", strings.ReplaceAll("{\n \"a\": 1,\n \"s\": {\n  "+at("  ", " ")+"\n }\n}\n", "\n", "\r\n")},
		{jsonc, "\uFEFF{\"s\":{\"a\":1}}", "\uFEFF" + `{"s":{"a":1, "e": {"command":"c","args":[]}}}`},
		{jsonc, `{"s":{"e":0},"s":{"e":1}}`, `{"s":{"e":0},"s":{"e":{"command":"c","args":[]}}}`},
		{jsonc, "{\"a\": 1} // the end", "{\"a\": 1, \"s\": {\"e\":{\"command\":\"c\",\"args\":[]}}} // the end"},
		{tables, " \n", " \n" + table},
		{tables, "a = 1\r\n", "a = 1\r\n\r\n" + strings.ReplaceAll(table, "\n", "\r\n")},
		{tables, "[s]\na.x = 1\ne = { command = 'd' } # mine\nb.x = 1", "[s]\na.x = 1\nb.x = 1\n\n" + table},
		{tables, "[s]\ne.command = 'd'\nb.x = 1\n[s.e.env]\nA = '1'\n[t]\n", "[s]\nb.x = 1\n" + table + "[t]\n"},
		{tables, "[s.e.env]\nA = '1'\n[t]\n[s.e]\ncommand = 'd'\n# the end\n", table + "[t]\n# the end\n"},
		{tables, "s.e.command = 'd'\n", table},
		{tables, "[s]\ne.command = 'd'\n# mine\ne.args = []\nb.x = 1\n", "[s]\n# mine\nb.x = 1\n\n" + table},
		{tables, "[s.e]\nargs = []\n\ncommand = \"c\"\n", "[s.e]\nargs = []\n\ncommand = \"c\"\n"},
	} {
		made, err := changed(c.format, []byte(c.before), "e", server{Command: "c", Args: []string{}})
		if err != nil || string(made.text) != c.after {
			t.Errorf("%q: got (%v)\n%q, want\n%q", c.before, err, made.text, c.after)
		}
	}
}

// A server with odd characters is read as it was given.
func TestOddServersInTOML(t *testing.T) {
	t.Parallel()
	f := &tomlFormat{servers: "s"}
	for _, text := range []string{
		"", "'", `"`, `C:\new\"one"`, `it's "C:\u0041"`, "two\nlines", "a\r\n\t\x00\x1f\x7f\b", "'''", `"""`, "a\x7f", "a\x1f", "'\x7f", "'\x1f ", "# none", "[s.e]", "é ☃ 😀\u2028\ufeff", "$HOME",
	} {
		s := server{Command: text, Args: []string{text, "x", text}, Variables: []string{text}}
		made, err := changed(f, []byte("a = 1\r\n"), "e", s)
		must.Do(t, err)
		servers, _, err := f.values(made.text)
		must.Do(t, err)
		want := map[string]any{"e": map[string]any{"command": text, "args": []any{text, "x", text}, "env_vars": []any{text}}}
		if diff := cmp.Diff(want, servers); diff != "" {
			t.Errorf("%q as\n%s(-want +got):\n%s", text, made.text, diff)
		}
	}
	if made, err := changed(f, nil, "e", server{Command: "\xff"}); err == nil {
		t.Errorf("got %q for a command that is no text, want a refusal", made.text)
	}
}

// What cannot be changed is an error with its place, and has no value of the file in it.
func TestRefusedTexts(t *testing.T) {
	t.Parallel()
	jsonc, strict, tables := &jsonFormat{servers: "s"}, &jsonFormat{servers: "s", isStrict: true}, &tomlFormat{servers: "s"}
	for _, c := range []struct {
		format       format
		before, want string
	}{
		{jsonc, "{\n  \"a\": }", "line 2, column 8: invalid character '}' at start of value"},
		{jsonc, "{\n  \"a\": \"secret\\q\"}", "line 2, column 8: this is no valid string, number or word"},
		{jsonc, "[]", "line 1, column 1: the configuration is to be an object, {…}"},
		{jsonc, "{\n \"s\": null}", "line 2, column 7: s is to be an object, {…}"},
		{strict, "{\n  \"a\": 1, // one\n}", "line 2, column 11: invalid character '/' looking for beginning of object key string"},
		{strict, `{"a"`, "line 1, column 4: unexpected end of JSON input"},
		{tables, "a = 1\nb = [", "line 2, column 5: array is incomplete"},
		{tables, "a = 1\na = 2", "line 2, column 1: key a is already defined"},
		{tables, "\ns = { a = {} }", "line 2, column 1: s is a value or a list, not a table"},
		{tables, "[[s]]\na = 1", "line 1, column 3: s is a value or a list, not a table"},
	} {
		made, err := changed(c.format, []byte(c.before), "e", server{Command: "c", Args: []string{}})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %q, %v, want %s", c.before, made.text, err, c.want)
		}
	}
}

// An edit that changes more than the server is found out.
func TestOtherChangesAreRefused(t *testing.T) {
	t.Parallel()
	f := &jsonFormat{servers: "s"}
	for _, after := range []string{`{"s":{"a":2}}`, `{"s":{"a":1},"b":1}`, `{"s":{}}`, `{`} {
		if _, err := checked(f, []byte(`{"s":{"a":1}}`), []byte(after), "e"); err == nil || !strings.Contains(err.Error(), "nothing was written") {
			t.Errorf("%s: got %v, want a refusal", after, err)
		}
	}
}

func TestSecretsIn(t *testing.T) {
	t.Parallel()
	got := secretsIn(map[string]any{
		"env":           map[string]any{"A": "hidden1", "B": "${env:B}", "C": "1"},
		"http_headers":  map[string]any{"X": "hidden2"},
		"primaryApiKey": "hidden3",
		"list":          []any{map[string]any{"Password": []any{"hidden4"}}},
		"command":       "shown",
	}, false)
	slices.Sort(got)
	if diff := cmp.Diff([]string{"hidden1", "hidden2", "hidden3", "hidden4"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	const text = `{"a": "hidden1", 'hidden1', "b\"hidden", "shown", hidden1}`
	if got, want := string(hide([]byte(text), []string{"hidden1", `b"hidden`, "shown"}, []string{"shown"})), `{"a": "***", "***", "***", "shown", hidden1}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
