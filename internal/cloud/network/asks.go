package network

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Bounds of questions, and of the answers to them.
const (
	// askTimeout bounds the time in which a program must answer. takeTimeout bounds the time
	// until a program fetches the question.
	askTimeout  = 30 * time.Second
	takeTimeout = 5 * time.Second
	maxOpenAsks = 32
	maxAsks     = 1000
)

// Rules that errors name if a host is denied because of a question to a program.
const (
	ruleRefused   = "the program that is asked about this sandbox's network said no"
	ruleSilent    = "the program that is asked about this sandbox's network did not answer within 30 seconds"
	ruleNobody    = "the sandbox's network rules say that a program is asked, and none is connected"
	ruleManyOpen  = "a program is asked about too many hosts at the same time"
	ruleManyAsked = "a program was asked about as many hosts as it is asked about for one sandbox"
	ruleForgotten = "the address stood for a name that is no longer known: look the name up again"
)

// Target is a port of a host.
type Target struct {
	Host string `json:"host"` // a name in lower case without a final dot, or an address
	Port uint16 `json:"port"`
}

// String returns the target as programs write it, such as pypi.org:443.
func (t Target) String() string { return withPort(t.Host, t.Port) }

// Question asks whether a sandbox may reach a target.
type Question struct {
	ID int64 `json:"id"` // Later questions have greater ids, even after a restart of the server.
	Target
}

// Asks contains the questions about the targets that one sandbox may reach, and their answers. The
// answers apply as long as the sandbox lives. Asks also contains the addresses that stand for names
// in that sandbox. The zero value is empty. Asks is safe for concurrent use.
type Asks struct {
	standIns standIns

	mu      sync.Mutex
	last    int64
	targets map[Target]*asked
	asking  chan struct{} // closed when the next question is asked; nil: no caller waits for a question
}

// asked is an open or answered question.
type asked struct {
	Question
	taken    bool          // a program has received the question, and has confirmed this by requesting later questions
	answered chan struct{} // closed when rule is known
	rule     string        // the rule that denies the target; "": it may be reached
	timers   []*time.Timer
}

// Allow returns "" if a target may be reached, and otherwise the rule that denies the target. If
// the question about the target is open, Allow waits until the function answer decides. If answer
// is nil, Allow waits until a program fetches and answers the question. The host of the target is
// normalized.
func (a *Asks) Allow(ctx context.Context, to Target, answer Answer) (rule string, err error) {
	q, rule := a.question(to, answer)
	if rule != "" {
		return rule, nil
	}
	select {
	case <-q.answered:
		return q.rule, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// question returns the question about a target. The first call for a target asks the question. If
// there are too many questions, it returns the rule that denies the target.
func (a *Asks) question(to Target, answer Answer) (_ *asked, rule string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q := a.targets[to]; q != nil {
		return q, ""
	}
	switch {
	case len(a.targets) >= maxAsks:
		return nil, ruleManyAsked
	case len(a.openLocked()) >= maxOpenAsks:
		return nil, ruleManyOpen
	case a.targets == nil:
		a.targets = map[Target]*asked{}
	}
	a.last = max(a.last+1, time.Now().UnixMicro())
	q := &asked{Question: Question{a.last, to}, answered: make(chan struct{})}
	a.targets[to] = q
	q.timers = []*time.Timer{
		time.AfterFunc(takeTimeout, func() { a.forget(q) }),
		time.AfterFunc(askTimeout, func() { a.end(q.ID, ruleSilent) }),
	}
	if a.asking != nil {
		close(a.asking)
		a.asking = nil
	}
	if answer != nil {
		q.taken = true
		go a.ask(q, answer)
	}
	return q, ""
}

// An Answer decides whether a sandbox may reach a target. ctx ends when the time for the decision
// is over.
type Answer func(ctx context.Context, to Target) bool

// ask calls the function answer to answer a question. If the function takes too long, the question
// ends without an answer.
func (a *Asks) ask(q *asked, answer Answer) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	if allow := answer(ctx, q.Target); ctx.Err() == nil {
		a.Answer(q.ID, allow)
	}
}

// forget ends a question that no program has fetched. The next request for the same target asks the
// question again.
func (a *Asks) forget(q *asked) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !q.taken && q.endLocked(ruleNobody) {
		delete(a.targets, q.Target)
	}
}

// end answers an open question. It returns false if the question is not open.
func (a *Asks) end(id int64, rule string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.targets {
		if q.ID == id {
			return q.endLocked(rule)
		}
	}
	return false
}

// endLocked answers the question. It returns false if the question was not open.
func (q *asked) endLocked(rule string) bool {
	if q.timers == nil {
		return false
	}
	for _, t := range q.timers {
		t.Stop()
	}
	q.rule, q.timers = rule, nil
	close(q.answered)
	return true
}

// openLocked returns the open questions, sorted by id.
func (a *Asks) openLocked() []*asked {
	var open []*asked
	for _, q := range a.targets {
		if q.timers != nil {
			open = append(open, q)
		}
	}
	slices.SortFunc(open, func(a, b *asked) int { return cmp.Compare(a.ID, b.ID) })
	return open
}

// Open returns the open questions that follow the question with the id after. A program that calls
// Open thereby confirms that it has received all earlier questions. The returned questions count as
// received only at the next call, because the program may have ended before it receives them. If
// there are no later questions, Open waits until there is one, or until ctx ends.
func (a *Asks) Open(ctx context.Context, after int64) []Question {
	for {
		questions, asking := a.take(after)
		if len(questions) > 0 {
			return questions
		}
		select {
		case <-asking:
		case <-ctx.Done():
			return nil
		}
	}
}

func (a *Asks) take(after int64) ([]Question, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var questions []Question
	for _, q := range a.openLocked() {
		if q.ID <= after {
			q.taken = true
		} else {
			questions = append(questions, q.Question)
		}
	}
	if a.asking == nil {
		a.asking = make(chan struct{})
	}
	return questions, a.asking
}

// Answer answers a question. It returns false if the question is not open.
func (a *Asks) Answer(id int64, allow bool) bool {
	if allow {
		return a.end(id, "")
	}
	return a.end(id, ruleRefused)
}

// asks reports whether a program decides about the hosts that no rule names.
func (e *Egress) asks() bool { return e.Asks != nil && e.Rules.Asks() }

// permitName returns the rules for a connection to a name. named reports whether the rules allow
// the name. If the rules require a question, permitName asks it, and does not look up the name
// before the answer. The reason is that a lookup would reveal the name to the name server of the
// name's owner.
func (e *Egress) permitName(ctx context.Context, host string, port uint16) (rules *Rules, named bool, err error) {
	name := normalize(host)
	switch {
	case numeric(name):
		return nil, false, &DeniedError{Host: host, Rule: ruleNumeric}
	case (port != portHTTPS || e.Door == nil) && e.Rules.Limited(name):
		return nil, false, &DeniedError{Host: host, Rule: ruleRequests}
	case e.Rules.named(name):
		return e.Rules, true, nil
	case !e.Rules.DenyAll():
		return e.Rules, false, nil
	case !e.asks():
		return nil, false, &DeniedError{Host: host, Rule: e.Rules.denial()}
	}
	rules, err = e.permit(ctx, host, port)
	return rules, false, err
}

// permitAddress returns the rules for a connection to an address. If only the rule about all
// traffic denies the address, permitAddress asks a program about it.
func (e *Egress) permitAddress(ctx context.Context, host string, port uint16) (*Rules, error) {
	asked, err := e.needsAnswer(host)
	if err != nil || !asked {
		return e.Rules, err
	}
	address := netip.MustParseAddr(host).Unmap()
	if standInNetwork.Contains(address) {
		return nil, &DeniedError{Host: host, Rule: ruleForgotten}
	}
	return e.permit(ctx, address.String(), port)
}

// needsAnswer reports whether a program must be asked about an address. This is the case if no rule
// except the rule about all traffic denies the address.
func (e *Egress) needsAnswer(host string) (bool, error) {
	a, err := netip.ParseAddr(host)
	if err != nil || !e.asks() {
		return false, err
	}
	rule, err := e.judge(a, e.Rules)
	if err != nil || rule == "" {
		return false, err
	}
	rule, err = e.judge(a, e.Rules.lifted())
	return rule == "", err
}

// permit asks a program whether a target may be reached. If it may be reached, permit returns the
// rules for the connection.
func (e *Egress) permit(ctx context.Context, host string, port uint16) (*Rules, error) {
	rule, err := e.Asks.Allow(ctx, Target{normalize(host), port}, e.Ask)
	if err != nil {
		return nil, err
	}
	if rule != "" {
		return nil, &DeniedError{Host: host, Rule: rule}
	}
	return e.Rules.lifted(), nil
}
