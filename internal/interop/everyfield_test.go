//go:build linux

package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// madeRequest is a request of the newest SDK, with every field that it can have.
type madeRequest struct {
	Method, Path string
	Query        map[string]any
	Body         map[string]any // nil: it has none
}

// TestEveryField sends each request that the newest SDK knows how to make, with every
// field, and fails if the cloud silently ignores one.
func TestEveryField(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	client, err := api.NewClient(api.WithAPIKey(cloud.APIKey()), api.WithBaseURL(cloud.URL()))
	must.Do(t, err)
	volume, err := client.Volumes.Create(t.Context(), "fields")
	must.Do(t, err)
	for i, request := range everyRequest(t, volume.ID) {
		// No client sends the mark. If the cloud has it in its log, it looked at the
		// fields.
		mark := fmt.Sprintf("0mark%d", i)
		if request.Body != nil {
			request.Body[mark] = true
		}
		answer := send(t, cloud, volume, request)
		if strings.Contains(answer, "no such path") || strings.Contains(answer, "is not allowed on") {
			t.Errorf("%s %s: got %s, want it served or refused by name", request.Method, request.Path, answer)
		}
		if request.Body == nil {
			continue
		}
		var logged local.Request
		patience.Until(t, fmt.Sprintf("%s %s is in the request log", request.Method, request.Path), func() bool {
			all := cloud.Requests()
			at := slices.IndexFunc(all, func(r local.Request) bool { return slices.Contains(r.Ignored, mark) })
			if at >= 0 {
				logged = all[at]
			}
			return at >= 0
		})
		for _, field := range logged.Ignored {
			if field != mark && !refuses(answer, field) {
				t.Errorf("%s %s: the log has the field %s as ignored, want none", request.Method, request.Path, field)
			}
		}
	}
}

// everyRequest returns the requests that the newest SDK knows how to make.
func everyRequest(t *testing.T, volume string) []madeRequest {
	t.Helper()
	interpreter, packages := installPython(t, "newest")
	command := exec.CommandContext(t.Context(), interpreter, filepath.Join("python", "everyfield.py"), volume)
	command.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, &stderr)
	}
	var requests []madeRequest
	for line := range bytes.Lines(out) {
		var one madeRequest
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatalf("the script printed %s: %v", line, err)
		}
		requests = append(requests, one)
	}
	if len(requests) < 50 {
		t.Errorf("the script made %d requests, want at least the 50 that the SDK has had for long", len(requests))
	}
	return requests
}

// send sends a request and returns the answer's body.
func send(t *testing.T, cloud *sandboxtest.Cloud, volume *api.Volume, made madeRequest) string {
	t.Helper()
	query := url.Values{}
	for name, value := range made.Query {
		query.Set(name, fmt.Sprint(value))
	}
	var body io.Reader
	if made.Body != nil {
		text, err := json.Marshal(made.Body)
		must.Do(t, err)
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(patience.Context(t), made.Method, cloud.URL()+made.Path+"?"+query.Encode(), body)
	must.Do(t, err)
	request.Header.Set(protocol.HeaderAPIKey, string(cloud.APIKey()))
	if strings.HasPrefix(made.Path, "/volumecontent/") {
		request.Header.Set("Authorization", "Bearer "+string(volume.Token))
	}
	response, err := clienttest.New(t).Do(request)
	must.Do(t, err)
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	must.Do(t, err)
	return string(answer)
}

var refusedPart = regexp.MustCompile(`not supported by this local cloud: (?:the field )?([\w.]+)`)

// refuses reports whether an answer refuses the part of the request that has a field.
func refuses(answer, field string) bool {
	part := refusedPart.FindStringSubmatch(answer)
	return part != nil && strings.HasPrefix(field, part[1]+".")
}
