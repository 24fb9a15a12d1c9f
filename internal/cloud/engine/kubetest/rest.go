//go:build linux

package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// StatusError is an answer of the API server with a status of failure.
type StatusError struct {
	Code int
	Text string
}

func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Code, e.Text) }

// Call calls the API server as a user with all permissions. It sends in as a JSON body; the body of a
// PATCH is a merge patch. Call decodes the answer into out. in and out may be nil. If the status of
// the answer is a failure, the error is a [*StatusError].
func (c *Cluster) Call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.Token)
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		var status struct{ Message string }
		if json.Unmarshal(data, &status) != nil || status.Message == "" {
			status.Message = strings.TrimSpace(string(data))
		}
		return fmt.Errorf("%s %s: %w", method, path, &StatusError{response.StatusCode, clip.Text(status.Message, 1000)})
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}

// Object contains some fields of an object of any kind.
type Object struct {
	Metadata struct {
		Name, UID         string
		DeletionTimestamp string
		Annotations       map[string]string
	}
	Status struct {
		Phase      string
		PodIP      string
		Conditions []Condition
	}
}

// Condition is a condition of an object.
type Condition struct{ Type, Status, Reason, Message string }

// Has reports whether a condition is true.
func (o Object) Has(condition string) bool {
	for _, c := range o.Status.Conditions {
		if c.Type == condition {
			return c.Status == "True"
		}
	}
	return false
}

// list is the answer to a request for all objects of a kind.
type list struct{ Items []Object }
