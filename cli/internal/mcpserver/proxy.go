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

// Proxy is another server of the Model Context Protocol. Code in sandboxes may call its tools as
// Python functions. The server runs on this machine and keeps its credentials there: only arguments
// and results of calls reach the sandbox.
type Proxy struct {
	// Name, with an underscore after it, is the prefix of the names of the Python functions.
	Name string
	// Command is the program of the server and its arguments.
	Command []string
	// Env is the complete environment of the server, as KEY=VALUE. Nil means an empty environment.
	Env []string
}

// proxies are the servers behind [Config.Proxies].
type proxies struct {
	config   *Config
	patience time.Duration   // the time in which a server must start and list its tools
	life     context.Context //nolint:containedctx // the context of the servers, which close ends
	stop     context.CancelFunc

	mu      sync.Mutex
	servers map[string]*proxied // the last start of each server, by the server's name
	starts  sync.WaitGroup
}

// proxied is one started process of a server.
type proxied struct {
	began chan struct{} // closed when the server has started, or failed to start
	ended chan struct{} // closed when the server has ended, or failed to start
	tools []agent.Tool
	err   error
}

// proxyPatience limits the time in which a server must start and list its tools.
const proxyPatience = 30 * time.Second

func newProxies(config *Config) *proxies {
	p := &proxies{config: config, patience: proxyPatience, servers: map[string]*proxied{}}
	p.life, p.stop = context.WithCancel(context.Background())
	return p
}

// tools returns the functions of all servers, and the processes that serve them. First it starts
// each server that was not started yet, failed to start, or has ended since.
func (p *proxies) tools(ctx context.Context) ([]agent.Tool, []*proxied, error) {
	if err := p.checkAllowed(); err != nil {
		return nil, nil, err
	}
	var starts []*proxied
	for _, proxy := range p.config.Proxies {
		starts = append(starts, p.started(proxy))
	}
	var all []agent.Tool
	for i, start := range starts {
		if err := wait(ctx, start.began); err != nil {
			return nil, nil, err
		}
		if start.err != nil {
			return nil, nil, fmt.Errorf("the server %s: %w", p.config.Proxies[i].Name, start.err)
		}
		all = append(all, start.tools...)
	}
	return all, starts, nil
}

// checkAllowed returns an error if the allowed tools include a tool of a server that is not among
// the proxies.
func (p *proxies) checkAllowed() error {
	var unknown []string
	for _, name := range p.config.AllowTools {
		server, _, _ := strings.Cut(name, ".")
		if !slices.ContainsFunc(p.config.Proxies, func(proxy Proxy) bool { return proxy.Name == server }) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return fmt.Errorf("no server has the tools %s that are allowed: want SERVER.TOOL", strings.Join(unknown, ", "))
	}
	return nil
}

// started returns the running process of a server. If there is none, it starts the server in the
// background and returns the new process.
func (p *proxies) started(proxy Proxy) *proxied {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := p.servers[proxy.Name]; last != nil && !last.hasEnded() {
		return last
	}
	start := &proxied{began: make(chan struct{}), ended: make(chan struct{})}
	p.servers[proxy.Name] = start
	if p.life.Err() != nil {
		start.err = context.Cause(p.life)
		close(start.began)
		close(start.ended)
		return start
	}
	p.starts.Go(func() {
		defer close(start.ended)
		session, err := p.connect(proxy, start)
		start.err = err
		close(start.began)
		if session == nil {
			return
		}
		if err == nil {
			end := context.AfterFunc(p.life, func() { _ = session.Close() })
			_ = session.Wait() // its error, if any, is that of the calls
			end()
		}
		_ = session.Close() // the server may have ended before, with a status of its own
	})
	return start
}

func (s *proxied) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// connect starts a server and reads the list of its tools. The caller must close the session. If
// connect fails before the session has begun, it returns a nil session.
func (p *proxies) connect(proxy Proxy, start *proxied) (*sdk.ClientSession, error) {
	ctx, cancel := context.WithTimeout(p.life, p.patience)
	defer cancel()
	cmd := exec.Command(proxy.Command[0], proxy.Command[1:]...) //nolint:noctx // it outlives this call; close ends it
	cmd.Env = append([]string{}, proxy.Env...)
	// os/exec itself discards its stderr. It may contain secrets, and with a pipe close would wait for the
	// processes that the command leaves behind.
	client := sdk.NewClient(&sdk.Implementation{Name: "e2bctl", Version: p.config.Version}, &sdk.ClientOptions{Logger: p.config.Logger})
	session, err := client.Connect(ctx, &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return nil, p.failure(ctx, err)
	}
	start.tools, err = p.toolsOf(ctx, proxy, session)
	return session, p.failure(ctx, err)
}

// failure returns err. If the time limit of ctx is over, it returns an error with the text that the
// server did not answer in time.
func (p *proxies) failure(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("it did not start and list its tools in %v: try its command by hand", p.patience)
	}
	return err
}

// toolsOf returns the functions of a server.
func (p *proxies) toolsOf(ctx context.Context, proxy Proxy, session *sdk.ClientSession) ([]agent.Tool, error) {
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

// approve returns a function that asks the user before a call of a tool that [Config].AllowTools
// does not name.
func (p *proxies) approve(server string) func(context.Context, string, agent.ToolCall) error {
	return func(ctx context.Context, tool string, call agent.ToolCall) error {
		ask, ok := ctx.Value(questionKey{}).(question)
		if ok && ask(ctx, fmt.Sprintf("Code in the sandbox wants to call %s of the server %s with %s. Allow this call?", clip.Line(plain(tool), 100), server, clip.Line(plain(fmt.Sprint(call.Arguments)), 500))) {
			return nil
		}
		return errors.New("the user has not allowed this call")
	}
}

// questionKey is the context key for the [question] of a call.
type questionKey struct{}

// close ends the servers.
func (p *proxies) close() {
	p.mu.Lock()
	p.stop() // no start begins after it
	p.mu.Unlock()
	p.starts.Wait()
}

type searchArguments struct {
	Query string `json:"query,omitempty" jsonschema:"words to find in names and descriptions; without it, all are listed"`
}

const searchName = "search_tools"

func searchTool() tool {
	return toolOf(&sdk.Tool{
		Name: searchName, Annotations: hints("Search functions", true, false, false),
		Description: "Find Python functions that run_python can call, with their parameters: tools of other servers. Call several in one piece of code, and print only what you need.",
	}, func(ctx context.Context, e *endpoint, _ *sdk.CallToolRequest, in searchArguments) (*sdk.CallToolResult, error) {
		return e.search(ctx, in.Query), nil
	})
}

func (e *endpoint) search(ctx context.Context, query string) *sdk.CallToolResult {
	var a answer
	tools, _, err := e.proxies.tools(ctx)
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

// ranked returns the tools whose text contains a word of the query. Tools with more words of the
// query come first.
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
	byScore := make([][]agent.Tool, len(words)+1)
	for _, t := range tools {
		n := score(t)
		byScore[n] = append(byScore[n], t)
	}
	slices.Reverse(byScore[1:])
	return slices.Concat(byScore[1:]...)
}
