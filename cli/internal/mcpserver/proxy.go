package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/agent/agentmcp"
)

// Proxy is a server of the protocol whose tools code in sandboxes may call as Python functions. It
// runs on this machine, with its credentials: only arguments and results of calls reach the sandbox.
type Proxy struct {
	// Name is the prefix of the names of its functions; an underscore follows it.
	Name string
	// Command is its program and arguments.
	Command []string
	// Env is its whole environment, as KEY=VALUE. Nil means an empty one.
	Env []string
}

// proxies are the servers behind [Config.Proxies].
type proxies struct {
	config *Config
	start  func() ([]agent.Tool, error)
	began  chan struct{}

	mu       sync.Mutex
	sessions []*sdk.ClientSession
	stop     context.CancelFunc
}

func newProxies(config *Config) *proxies {
	life, stop := context.WithCancel(context.Background())
	p := &proxies{config: config, began: make(chan struct{}), stop: stop}
	p.start = sync.OnceValues(func() ([]agent.Tool, error) {
		defer close(p.began)
		return p.connect(life)
	})
	return p
}

// tools returns the functions of all servers. They are started at the first call.
func (p *proxies) tools(ctx context.Context) ([]agent.Tool, error) {
	if len(p.config.Proxies) == 0 {
		return nil, nil
	}
	go p.start() //nolint:errcheck // it returns the error again below
	if err := wait(ctx, p.began); err != nil {
		return nil, err
	}
	return p.start()
}

// proxyPatience limits the time for a server to start and to list its tools.
const proxyPatience = 30 * time.Second

func (p *proxies) connect(ctx context.Context) ([]agent.Tool, error) {
	var all []agent.Tool
	var unknown []string
	for _, name := range p.config.AllowTools {
		server, _, _ := strings.Cut(name, ".")
		if !slices.ContainsFunc(p.config.Proxies, func(proxy Proxy) bool { return proxy.Name == server }) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("no server has the tools %s that are allowed: want SERVER.TOOL", strings.Join(unknown, ", "))
	}
	for _, proxy := range p.config.Proxies {
		tools, err := p.connectOne(ctx, proxy)
		if err != nil {
			return nil, fmt.Errorf("the server %s: %w", proxy.Name, err)
		}
		all = append(all, tools...)
	}
	return all, nil
}

func (p *proxies) connectOne(ctx context.Context, proxy Proxy) ([]agent.Tool, error) {
	ctx, cancel := context.WithTimeout(ctx, proxyPatience)
	defer cancel()
	cmd := exec.Command(proxy.Command[0], proxy.Command[1:]...) //nolint:noctx // it outlives this call; close ends it
	cmd.Env = append([]string{}, proxy.Env...)
	// os/exec itself discards its stderr. It may contain secrets, and with a pipe close would wait for the
	// processes that the command leaves behind.
	client := sdk.NewClient(&sdk.Implementation{Name: "e2bctl", Version: p.config.Version}, &sdk.ClientOptions{Logger: p.config.Logger})
	session, err := client.Connect(ctx, &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.sessions = append(p.sessions, session)
	p.mu.Unlock()
	var allow []string
	for _, name := range p.config.AllowTools {
		if server, tool, _ := strings.Cut(name, "."); server == proxy.Name {
			allow = append(allow, tool)
		}
	}
	return agentmcp.Tools(ctx, session, &agentmcp.ToolsParams{
		Prefix: proxy.Name + "_", Allow: allow, Approve: p.approve(proxy.Name), Logger: p.config.Logger,
		Unusable: func(tool string, err error) {
			p.config.Logger.WarnContext(ctx, "a tool cannot be used", "server", proxy.Name, "tool", clip.Line(tool, 100), "error", err)
		},
	})
}

// approve asks the user before a call of a tool that is not allowed by name.
func (p *proxies) approve(server string) func(context.Context, string, agent.ToolCall) error {
	return func(ctx context.Context, tool string, call agent.ToolCall) error {
		ask, ok := ctx.Value(questionKey{}).(question)
		if ok && ask(ctx, fmt.Sprintf("Code in the sandbox wants to call %s of the server %s with %s. Allow this call?", clip.Line(plain(tool), 100), server, clip.Line(plain(fmt.Sprint(call.Arguments)), 500))) {
			return nil
		}
		return errors.New("the user has not allowed this call")
	}
}

// questionKey is the key in the context of a call for its [question].
type questionKey struct{}

func (p *proxies) close() error {
	p.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	return each(p.sessions, func(session *sdk.ClientSession) error {
		_ = session.Close() // the server may have ended before, with a status of its own
		return nil
	})
}

type searchArguments struct {
	Query string `json:"query,omitempty" jsonschema:"words to find in names and descriptions; without it, all are listed"`
}

const searchName = "search_tools"

func searchTool() tool {
	declared := &sdk.Tool{
		Name: searchName, Annotations: hints("Search functions", true, false, false),
		Description: "Find Python functions that run_python can call, with their parameters: tools of other servers. Call several in one piece of code, and print only what you need.",
	}
	return tool{declared.Name, func(e *endpoint, server *sdk.Server) {
		sdk.AddTool(server, declared, func(ctx context.Context, _ *sdk.CallToolRequest, in searchArguments) (*sdk.CallToolResult, any, error) {
			return e.search(ctx, in.Query), nil, nil
		})
	}}
}

func (e *endpoint) search(ctx context.Context, query string) *sdk.CallToolResult {
	var a answer
	tools, err := e.proxies.tools(ctx)
	if err != nil {
		return a.failed(err)
	}
	found, left := 0, 0
	for _, t := range ranked(tools, query) {
		if found > 0 && a.size+len(t.Prompt()) > maxText {
			left++
			continue
		}
		found++
		a.print(plain(t.Prompt()))
	}
	a.note("%d of %d functions", found, len(tools))
	if left > 0 {
		a.note("%d more match: name more words", left)
	}
	return a.result()
}

// ranked returns the tools that contain a word of the query, those with the most words first.
func ranked(tools []agent.Tool, query string) []agent.Tool {
	words := strings.Fields(strings.ToLower(query))
	if len(words) == 0 {
		return tools
	}
	score := func(t agent.Tool) (n int) {
		text := strings.ToLower(t.Name() + " " + t.Description())
		for _, word := range words {
			if strings.Contains(text, word) {
				n++
			}
		}
		return n
	}
	found := slices.DeleteFunc(slices.Clone(tools), func(t agent.Tool) bool { return score(t) == 0 })
	slices.SortStableFunc(found, func(a, b agent.Tool) int { return score(b) - score(a) })
	return found
}
