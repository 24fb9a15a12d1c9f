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

// question asks the user, through the client, and reports whether the answer is yes. The answer is
// also no if the client cannot ask, or does not answer before ctx ends.
type question func(ctx context.Context, text string) bool

// roundTrips is the first version of the protocol in which the server asks a question by returning
// it as the result of a call. The client then repeats the call with the answer. In earlier versions
// a question is a request to the client.
const roundTrips = "2026-07-28"

// elicitation returns a question without fields: accepting it means yes.
func elicitation(text string) *sdk.ElicitParams {
	return &sdk.ElicitParams{Mode: "form", Message: text, RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}}
}

// answered calls run and returns its result. It sends the questions that run asks to the user of
// the client. If req contains the answer to a question, answered does not call run. It continues
// the call that asked the question.
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

// parking contains the calls that wait for a user's answer. They continue to run while they wait,
// because the sandbox decides how long it waits for an answer. A call that gets no answer within
// answerTime is cancelled.
type parking struct {
	life context.Context //nolint:containedctx // the server's context: a call that asks outlives its request

	mu     sync.Mutex
	parked map[string]*parked // the waiting calls, by the state that the client sends back with the answer
}

// parked is a call that began in an earlier request.
type parked struct {
	tool      string
	arguments []byte
	questions chan *asked
	open      *asked // the question that was sent to the client
	result    chan *sdk.CallToolResult
	cancel    context.CancelFunc
	abandoned *time.Timer
}

// asked is a question that a call has asked, with its answer.
type asked struct {
	text   string
	answer chan bool
}

// answerTime limits how long a call waits until the client repeats the call with an answer.
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

// follow waits for the call, and returns its result or its next question.
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

// goOn passes an answer to the call that asked, and returns the call's result or its next question.
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
	no     []string // the hosts that were refused since the last call of refused
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

// maxRefused bounds the number of refused hosts that the answer to a call names.
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

// refused returns the hosts that were refused since the last call of refused.
func (a *asking) refused() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	hosts := a.no
	a.no = nil
	return hosts
}
