//go:build linux

package kernel

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Queued is the type of the event that tells a client that its request waits,
// and the number of requests that are answered before it: content
// {"position": n}. It comes once when the request must wait, and then whenever
// the number changes among the last few. It is no message of Jupyter's own;
// clients ignore types that they do not know.
const Queued = "queued"

// closePositions are those of which every change is told.
const closePositions = 8

// announce tells clients where their requests are in the queue.
func (k *Kernel) announce() {
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-k.moved:
		}
		k.tellPositions()
	}
}

func (k *Kernel) tellPositions() {
	k.emitting.Lock()
	defer k.emitting.Unlock()
	for _, r := range k.displaced() {
		if k.attached(r.client) {
			r.client.deliver(k.ctx, Event{
				Channel: jupyter.IOPub, Type: Queued, Request: r, Time: time.Now(),
				Content: json.RawMessage(`{"position":` + strconv.Itoa(r.position) + `}`),
			})
		}
	}
}

// displaced gives the requests whose position is to be told. emitting is held,
// which guards Request.position.
func (k *Kernel) displaced() (list []*Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ahead := 0
	if k.current != nil {
		ahead = 1
	}
	tell := func(i int) {
		if r := k.queue[i]; r.position != i+ahead {
			r.position = i + ahead
			list = append(list, r)
		}
	}
	n := min(len(k.queue), closePositions)
	for i := range n {
		tell(i)
	}
	// Further back are the new ones, behind those that have been told once.
	first := len(k.queue)
	for first > n && k.queue[first-1].position == 0 {
		first--
	}
	for i := first; i < len(k.queue); i++ {
		tell(i)
	}
	return list
}

// queueMoved wakes announce.
func (k *Kernel) queueMoved() {
	select {
	case k.moved <- struct{}{}:
	default:
	}
}
