//go:build linux

package kernel

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Queued is the type of the event that tells a client that its request is waiting,
// and how many requests are answered before it: the content is {"position": n}. It
// is sent once when the request has to wait, and after that, for the requests near
// the front, whenever the number changes. It is not one of Jupyter's own messages;
// clients ignore unknown types.
const Queued = "queued"

// closePositions is the number of positions at the front for which every change is
// reported.
const closePositions = 8

// announce tells clients the positions of their requests in the queue.
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

// displaced sets the positions that have changed and must be reported, and returns their requests.
// The caller holds k.emitting, which guards Request.position.
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
	// The new requests are further back, behind those that have been reported once.
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
