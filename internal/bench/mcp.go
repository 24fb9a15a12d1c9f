//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpRows returns the rows that measure `e2bctl mcp` from the side of an agent's client.
func (b *bench) mcpRows() []row {
	return []row{
		{
			name: "`e2bctl mcp`: from its start to a result of Python", runs: 5, measure: calls(func(ctx context.Context) error {
				return b.withMCP(ctx, func(ctx context.Context, session *mcp.ClientSession) error { return addIn(ctx, session) })
			}),
			floor: calls(bare(b.command, "code", "run", "--local", "-c", adding)), floorName: "`e2bctl code run`",
		},
		{
			name: "`e2bctl mcp`: `run_python(\"" + adding + "\")`", runs: 200, measure: b.addingInMCP,
			floor: b.inOne(onePlusOne), floorName: "`RunCode`",
		},
		{
			name: "`e2bctl mcp --http`: from `initialize` to a result of Python in a new sandbox", runs: 4, measure: b.sessionsOverHTTP,
			floor: b.created(b.pause, onePlusOne), floorName: "`New` and `RunCode`",
		},
	}
}

func (b *bench) addingInMCP(ctx context.Context, runs int) (r result, err error) {
	err = b.withMCP(ctx, func(ctx context.Context, session *mcp.ClientSession) (err error) {
		r, err = repeat(ctx, runs, whole(func(ctx context.Context) error { return addIn(ctx, session) }))
		return err
	})
	return r, err
}

// addIn makes a server run a cell, and returns an error unless the value is 2.
func addIn(ctx context.Context, session *mcp.ClientSession) error {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": adding}})
	if err != nil {
		return err
	}
	if text, ok := result.Content[0].(*mcp.TextContent); result.IsError || !ok || text.Text != "2" {
		said, err := json.Marshal(result.Content)
		return errors.Join(fmt.Errorf("%s is %s", adding, said), err)
	}
	return nil
}

// withMCP starts `e2bctl mcp`, calls do with a session of it, and ends the process.
func (b *bench) withMCP(ctx context.Context, do func(context.Context, *mcp.ClientSession) error) (err error) {
	server := exec.CommandContext(ctx, b.command, "mcp", "--local", "--quiet")
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: server, TerminateDuration: 10 * time.Second}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	return do(ctx, session)
}

// sessionsOverHTTP measures sessions over HTTP with one server whose cloud is warm.
func (b *bench) sessionsOverHTTP(ctx context.Context, runs int) (r result, err error) {
	server := exec.CommandContext(ctx, b.command, "mcp", "--local", "--http", "127.0.0.1:0")
	said, err := server.StderrPipe()
	if err != nil {
		return r, err
	}
	if err := server.Start(); err != nil {
		return r, err
	}
	defer func() {
		_ = server.Process.Signal(os.Interrupt) // it may have ended
		_, _ = io.Copy(io.Discard, said)
		_ = server.Wait() // its status is that of the signal
	}()
	transport, err := transportOf(said)
	if err != nil {
		return r, err
	}
	one := func(ctx context.Context) (time.Duration, error) {
		select {
		case <-time.After(b.pause): // the next sandbox is warm
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		start := time.Now()
		session, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, transport, nil)
		if err != nil {
			return 0, err
		}
		err = addIn(ctx, session)
		took := time.Since(start)
		return took, errors.Join(err, session.Close())
	}
	// The server's cloud is warm when its Python has loaded. A server holds at most 20 sandboxes.
	for range 5 {
		if took, err := one(ctx); err != nil || took < warm {
			break // an error comes again
		}
	}
	return repeat(ctx, runs, one)
}

// warm is the bound between the time of the first result in a warm cloud and the longer time that
// loading Python takes.
const warm = 200 * time.Millisecond

// transportOf returns the transport to a server. The server prints its address, and the path of the
// file with its token, to stderr. transportOf reads both from there.
func transportOf(stderr io.Reader) (*mcp.StreamableClientTransport, error) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		_, after, found := strings.Cut(lines.Text(), ": at ")
		address, _, isAddress := strings.Cut(after, ", for clients")
		_, path, isToken := strings.Cut(after, "the token is in ")
		if !found || !isAddress || !isToken {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var identity struct {
			Token string `json:"token"`
		}
		if err := json.Unmarshal(content, &identity); err != nil {
			return nil, err
		}
		return &mcp.StreamableClientTransport{Endpoint: address, HTTPClient: &http.Client{Transport: withToken(identity.Token)}}, nil
	}
	return nil, errors.Join(errors.New("e2bctl mcp --http ended"), lines.Err())
}

// withToken is a bearer token that is added to requests.
type withToken string

// RoundTrip implements [http.RoundTripper].
func (token withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(r)
}
