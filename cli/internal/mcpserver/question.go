package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// question asks the user, through the client, and reports whether the answer is
// yes. A client that cannot ask, or does not answer before ctx ends, counts as no.
type question func(ctx context.Context, text string) bool

// roundTrips is the first version of the protocol in which a question is the result of a call, and the
// client repeats the call with the answer. In earlier versions a question is a request to the client.
const roundTrips = "2026-07-28"

// elicitation returns a question without fields: accepting it means yes.
func elicitation(text string) *sdk.ElicitParams {
	return &sdk.ElicitParams{Mode: "form", Message: text, RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}}
}

// answered returns the result of run, and sends its questions to the user of
// the client. If req answers a question, it continues the call that asked.
func (e *endpoint) answered(ctx context.Context, req *sdk.CallToolRequest, run func(context.Context, question) *sdk.CallToolResult) (*sdk.CallToolResult, error) {
	client := req.Session.InitializeParams()
	canAsk := client != nil && client.Capabilities != nil && client.Capabilities.Elicitation != nil
	switch {
	case req.Params.RequestState != "":
		return e.questions.goOn(ctx, req)
	case !canAsk:
		return run(ctx, func(context.Context, string) bool { return false }), nil
	case client.ProtocolVersion >= roundTrips:
		return e.questions.begin(ctx, req, run)
	}
	return run(ctx, func(ctx context.Context, text string) bool {
		answer, err := req.Session.Elicit(ctx, elicitation(text))
		return err == nil && answer.Action == "accept"
	}), nil
}

// parking holds the calls that wait for a user's answer. They run on
// meanwhile: the sandbox decides how long it waits for an answer.
type parking struct {
	life context.Context //nolint:containedctx // the server's context: a call that asks outlives its request

	mu     sync.Mutex
	parked map[string]*parked // the calls that wait, each by the state that the client sends back
}

// parked is a call that began in an earlier request.
type parked struct {
	tool      string
	arguments []byte
	questions chan *asked
	open      *asked // the question that the client was sent
	result    chan *sdk.CallToolResult
	cancel    context.CancelFunc
	abandoned *time.Timer
}

// asked is one question.
type asked struct {
	text   string
	answer chan bool
}

// answerTime limits how long a call waits for the client to repeat it with an answer.
const answerTime = 2 * time.Minute

func newParking(life context.Context) *parking {
	return &parking{life: life, parked: map[string]*parked{}}
}

// begin starts a call, and returns its result or its first question.
func (p *parking) begin(ctx context.Context, req *sdk.CallToolRequest, run func(context.Context, question) *sdk.CallToolResult) (*sdk.CallToolResult, error) {
	life, cancel := context.WithCancel(p.life) // the call outlives the request that began it
	one := &parked{
		tool: req.Params.Name, arguments: req.Params.Arguments, cancel: cancel,
		questions: make(chan *asked), result: make(chan *sdk.CallToolResult, 1),
	}
	go func() {
		defer cancel()
		one.result <- run(life, one.ask)
	}()
	return p.follow(ctx, one)
}

func (o *parked) ask(ctx context.Context, text string) bool {
	q := &asked{text: text, answer: make(chan bool, 1)}
	select {
	case o.questions <- q:
	case <-ctx.Done():
		return false
	}
	select {
	case yes := <-q.answer:
		return yes
	case <-ctx.Done():
		return false
	}
}

// follow returns the result of the call, or its next question.
func (p *parking) follow(ctx context.Context, one *parked) (*sdk.CallToolResult, error) {
	select {
	case result := <-one.result:
		return result, nil
	case q := <-one.questions:
		one.open = q
		return &sdk.CallToolResult{RequestState: p.park(one), InputRequests: sdk.InputRequestMap{questionID: elicitation(q.text)}}, nil
	case <-ctx.Done():
		one.cancel()
		return <-one.result, nil
	}
}

const questionID = "allow"

func (p *parking) park(one *parked) string {
	state := rand.Text()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked[state] = one
	one.abandoned = time.AfterFunc(answerTime, func() {
		if p.take(state) != nil {
			one.cancel()
		}
	})
	return state
}

func (p *parking) take(state string) *parked {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.parked[state]
	delete(p.parked, state)
	return one
}

// goOn hands an answer to the call that asked, and returns the call's result or next question.
func (p *parking) goOn(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	one := p.take(req.Params.RequestState)
	if one == nil || one.tool != req.Params.Name || !bytes.Equal(one.arguments, req.Params.Arguments) {
		if one != nil {
			one.cancel()
		}
		var a answer
		return a.failed(errors.New("the question that this answers has expired: call the tool again")), nil
	}
	one.abandoned.Stop()
	answer, ok := req.Params.InputResponses[questionID].(*sdk.ElicitResult)
	one.open.answer <- ok && answer.Action == "accept"
	return p.follow(ctx, one)
}

// asking asks whether a sandbox may reach a host. It asks the
// client whose call began last. It is safe for concurrent use.
type asking struct {
	mu     sync.Mutex
	askers []*question
	no     []string // the hosts that were refused since refused was last called
}

// sendTo sends questions to ask until the returned function is called.
func (a *asking) sendTo(ask question) func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := &ask
	a.askers = append(a.askers, one)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		for i, other := range a.askers {
			if other == one {
				a.askers = append(a.askers[:i:i], a.askers[i+1:]...)
				return
			}
		}
	}
}

// maxRefused bounds the number of hosts that an answer names.
const maxRefused = 8

// host reports whether the user lets the sandbox reach a port of a host, for [sandbox.WithAsk].
func (a *asking) host(ctx context.Context, host string, port int) bool {
	name := clip.Line(plain(net.JoinHostPort(host, strconv.Itoa(port))), 255)
	a.mu.Lock()
	var ask question
	if n := len(a.askers); n > 0 {
		ask = *a.askers[n-1]
	}
	a.mu.Unlock()
	if ask != nil && ask(ctx, "A program in the sandbox wants to reach "+name+". Allow it, for as long as the sandbox lives?") {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.no) < maxRefused {
		a.no = append(a.no, name)
	}
	return false
}

// refused returns the hosts that were refused since its last call.
func (a *asking) refused() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	hosts := a.no
	a.no = nil
	return hosts
}
