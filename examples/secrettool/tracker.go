package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/e2bctl/e2bctl/sandbox/agent"
)

// tracker gives access to the issues of one repository. The code in the sandbox can choose neither
// another repository nor other operations. This restriction is necessary because the token permits
// other repositories and other operations.
type tracker struct {
	repository *url.URL // the URL of the repository in the API
	token      string
}

var repositoryName = regexp.MustCompile(`^[\w.-]+/[\w.-]+$`)

func newTracker(address, repository, token string) (*tracker, error) {
	if token == "" {
		return nil, errors.New("no token: set GITHUB_TOKEN")
	}
	if !repositoryName.MatchString(repository) {
		return nil, fmt.Errorf("%q is no repository: owner/name", repository)
	}
	base, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	return &tracker{base.JoinPath("repos", repository), token}, nil
}

// issue is the part of an issue that the code receives.
type issue struct {
	Number int      `py:"number"`
	Title  string   `py:"title"`
	Body   string   `py:"body"`
	Labels []string `py:"labels"`
}

// tools returns the tools for the code. approve is called before each change.
func (t *tracker) tools(approve approval) []agent.Tool {
	return []agent.Tool{
		agent.MustTool("issues", "Gives a page of the open issues, the newest first; none after the last page.", t.issues,
			agent.WithToolLimits(agent.ToolLimits{MaxCalls: 20, MaxConcurrency: 2, Timeout: 30 * time.Second, MaxResultBytes: 1 << 20})),
		agent.MustTool("comment", "Writes a comment to an issue, if the user agrees.", t.comment,
			agent.WithToolLimits(agent.ToolLimits{MaxCalls: 3, MaxConcurrency: 1, Timeout: 30 * time.Second, MaxArgumentBytes: 4 << 10}),
			agent.WithApproval(func(ctx context.Context, call agent.ToolCall) error {
				var c newComment
				if err := call.Arguments.Decode(&c); err != nil {
					return err
				}
				// Quoted, so that the text cannot trick the person who reads it.
				return approve(ctx, fmt.Sprintf("comment on #%d: %q", c.Number, c.Text))
			})),
	}
}

type page struct {
	Page int `py:"page" doc:"from 1"`
}

func (t *tracker) issues(ctx context.Context, p page) ([]issue, error) {
	var answer []struct {
		Number int
		Title  string
		Body   string
		Labels []struct{ Name string }
	}
	where := t.repository.JoinPath("issues")
	where.RawQuery = url.Values{"page": {fmt.Sprint(p.Page)}}.Encode()
	if err := t.call(ctx, http.MethodGet, where, nil, &answer); err != nil {
		return nil, err
	}
	issues := make([]issue, len(answer))
	for i, a := range answer {
		issues[i] = issue{Number: a.Number, Title: a.Title, Body: a.Body}
		for _, label := range a.Labels {
			issues[i].Labels = append(issues[i].Labels, label.Name)
		}
	}
	return issues, nil
}

type newComment struct {
	Number int    `py:"number" doc:"the issue's"`
	Text   string `py:"text" doc:"in Markdown"`
}

func (t *tracker) comment(ctx context.Context, c newComment) (struct{}, error) {
	body, err := json.Marshal(map[string]string{"body": c.Text})
	if err != nil {
		return struct{}{}, err
	}
	return struct{}{}, t.call(ctx, http.MethodPost, t.repository.JoinPath("issues", fmt.Sprint(c.Number), "comments"), body, nil)
}

// maxAnswer limits the bytes of an answer. A page of issues is smaller.
const maxAnswer = 16 << 20

// call makes one request to the API. The code in the sandbox may receive the errors of call.
func (t *tracker) call(ctx context.Context, method string, where *url.URL, body []byte, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, where.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+t.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return &agent.ToolError{
			Type: "HTTPError", Message: "the API answered " + response.Status,
			Retryable: response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= 500,
		}
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(answer)
}
