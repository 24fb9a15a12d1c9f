//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/state"
)

func TestNoKey(t *testing.T) {
	t.Setenv(api.EnvAPIKey, "")
	t.Chdir(t.TempDir())
	_, err := sandbox.Create(t.Context())
	if !errors.Is(err, api.ErrNoAPIKey) || !strings.Contains(err.Error(), "E2B_API_KEY") || !strings.Contains(err.Error(), "--local") {
		t.Errorf("got %v, want api.ErrNoAPIKey with %q and %q", err, "E2B_API_KEY", "--local")
	}
}

// A malformed key is refused before anything is sent, and is not printed.
func TestImpossibleKey(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	for _, key := range []string{"e2b_ secret", "e2b_secret\n", "e2b_\x00secret", "secrét"} {
		_, err := sandbox.Create(t.Context(), cloud.Option(), sandbox.WithAPIKey(api.Key(key)))
		if !errors.Is(err, api.ErrInvalidKey) || strings.Contains(err.Error(), "secr") {
			t.Errorf("key %q: %v", key, err)
		}
	}
	if sent := cloud.Requests(); len(sent) != 0 {
		t.Errorf("the cloud got %v, want none", sent)
	}
}

func TestRefusedKey(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	const key = "e2b_0123456789012345678901234567890123456789"
	_, err := sandbox.Create(t.Context(), cloud.Option(), sandbox.WithAPIKey(key))
	if !errors.Is(err, api.ErrUnauthorized) || strings.Contains(err.Error(), key) {
		t.Errorf("got %v, want api.ErrUnauthorized and no %q in it", err, key)
	}
}

func TestUnknownTemplate(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	for _, template := range []string{"no-such-template", "base:no-such-tag", "../base", strings.Repeat("x", 100_000)} {
		_, err := sandbox.Create(t.Context(), cloud.Option(), sandbox.WithTemplate(template))
		if !errors.Is(err, api.ErrNotFound) || !errors.Is(err, sandbox.ErrUnknownTemplate) || errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%.40s: got %.1000v, want ErrNotFound and ErrUnknownTemplate, not ErrGone", template, err)
			continue
		}
		if text := err.Error(); !strings.Contains(text, template[:7]) || len(text) > 1000 {
			t.Errorf("got %.1000q (%d bytes), want at most 1000 with %q", text, len(text), template[:7])
		}
	}
}

// The local cloud refuses values that it does not support or understand, and names
// the field.
func TestUnsupportedFields(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	for field, value := range map[string]string{
		"autoPause":            `"autoPause":1`,
		"autoPauseMemory":      `"autoPauseMemory":false`,
		"autoResume.enabled":   `"autoResume":{"enabled":"x"}`,
		"mcp":                  `"mcp":[]`,
		"iam":                  `"iam":{"x":1}`,
		"volumeMounts":         `"volumeMounts":[{"name":"v","path":"/v"}]`,
		"network.egressProxy":  `"network":{"egressProxy":{"host":"x"}}`,
		"network.rules":        `"network":{"rules":[{"x":1}]}`,
		"network.httpsPorts":   `"network":{"httpsPorts":[0]}`,
		"envVars":              `"envVars":{"A=B":"x"}`,
		"timeout":              `"timeout":-1`,
		"Timeout must be":      `"timeout":0`,
		"Timeout cannot be gr": `"timeout":999999999`,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, cloud.URL()+"/v2/sandboxes", strings.NewReader(`{"templateID":"base",`+value+`}`))
		must.Do(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-API-KEY", string(cloud.APIKey()))
		resp, err := client.Do(r)
		must.Do(t, err)
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || !bytes.Contains(body, []byte(field)) {
			t.Errorf("%s: got %d %s, want status http.StatusBadRequest and %q in it", value, resp.StatusCode, body, []byte(field))
		}
	}
	client2, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client2.Close()
	for info, err := range client2.List(t.Context(), nil) {
		t.Errorf("a refused create left %v, %v", info, err)
	}
}

func TestPackages(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	sb := cloud.Create(t)
	for _, requirement := range []string{
		"", " ", "six; touch /tmp/owned", "six && touch /tmp/owned", "$(touch /tmp/owned)", "`touch /tmp/owned`", "six|cat", "six > /tmp/owned",
		"-r/etc/passwd", "--index-url=http://example.invalid", "git+https://example.invalid/x", "https://example.invalid/x.whl", "six\n--pre", "../six",
	} {
		_, err := sb.Packages.Install(t.Context(), []string{requirement}, nil)
		refused, ok := errors.AsType[*sandbox.RequirementError](err)
		if !ok || refused.Requirement != requirement || !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("got %v, want ErrInvalidArgument in a *sandbox.RequirementError for %q", err, requirement)
		}
	}
	if got := sandboxtest.Run(t, sb, "ls /tmp/owned 2>&1 || true"); !strings.Contains(got, "No such file") {
		t.Errorf("got %q, want %q in it", got, "No such file")
	}
	if got := sandboxtest.Eval(t, sb, "1+1"); got != "2" {
		t.Errorf("got %q, want %q", got, "2")
	}
}

// Code that cannot run, such as code for a language or context that does not
// exist, is refused in the same way on both transports, and nothing is left behind.
func TestCodeThatCannotRun(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		sandboxtest.Eval(t, sb, "x = 41")
		for name, test := range map[string]struct {
			params sandbox.RunCodeParams
			want   error
			says   string
		}{
			"language":            {sandbox.RunCodeParams{Language: "klingon"}, nil, "klingon not found"},
			"context":             {sandbox.RunCodeParams{Context: "no-such-context"}, api.ErrNotFound, "no-such-context"},
			"a path":              {sandbox.RunCodeParams{Context: "../health"}, api.ErrNotFound, "../health"},
			"both":                {sandbox.RunCodeParams{Context: "default", Language: "python"}, api.ErrInvalidArgument, "Context and Language"},
			"a nameless variable": {sandbox.RunCodeParams{Envs: map[string]string{"": "x"}}, api.ErrInvalidArgument, "not the name of an environment variable"},
			"NUL in a variable":   {sandbox.RunCodeParams{Envs: map[string]string{"A": "\x00"}}, api.ErrInvalidArgument, "not the name of an environment variable"},
		} {
			execution, err := sb.RunCode(t.Context(), "1", &test.params)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: got %v, want an error with %q", name, err, test.says)
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%s: got %v, want %v", name, err, test.want)
			}
			if execution != nil {
				t.Errorf("%s: got %+v, want no execution", name, execution)
			}
		}
		if got := sandboxtest.Eval(t, sb, "x + 1"); got != "42" {
			t.Errorf("after them: %q, want %q", got, "42")
		}
	})
}

func TestStateThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	type inner struct {
		Fine int
		Bad  chan int
	}
	st := state.New()
	err := st.Set("data", map[string]any{"rows": []any{1, inner{Bad: make(chan int)}}})
	if err == nil {
		_, err = agent.Begin(t.Context(), sb, &agent.Params{State: st})
	}
	if err == nil {
		t.Fatal("in Go: no error")
	}
	for _, want := range []string{"Bad", "rows", "chan int"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("in Go: %v, want an error with %q", err, want)
		}
	}

	// This is the same in the other direction.
	r, err := agent.Begin(t.Context(), sb, &agent.Params{})
	must.Do(t, err)
	defer r.Close()
	if _, err := r.Exec(t.Context(), "data = {'rows': [{'bad': lambda: 0}]}"); err != nil {
		t.Fatal(err)
	}
	value, err := r.Get(t.Context(), "data")
	if err != nil || !value.Opaque() {
		t.Fatalf("in Python: %v, %v, want an opaque one and no error", value, err)
	}
	var data map[string][]map[string]int
	if err := value.Decode(&data); err == nil {
		t.Error("in Python: no error")
	} else {
		for _, want := range []string{"bad", "rows", "function"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("in Python: %v, want an error with %q", err, want)
			}
		}
	}
	if _, err := r.Get(t.Context(), "nothing"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a name that is not there: %v, want state.ErrNotFound", err)
	}
}
