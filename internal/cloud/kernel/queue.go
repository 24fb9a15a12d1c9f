//go:build linux

package kernel

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Queued is the type of the event that informs a client that its request waits. The content of the
// event is {"position": n}, where n is the number of requests that are answered first. The event is
// sent once when the request must wait. Near the front of the queue, it is sent again whenever n
// changes. Jupyter does not have this message type. Clients ignore unknown types.
const Queued = "queued"

// closePositions is the number of positions at the front of the queue for which every change is
// reported to the client.
const closePositions = 8

// announce sends clients the positions of their requests in the queue.
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

// displaced finds the requests with a changed position that must be reported. It updates
// Request.position of these requests and returns them. The caller holds k.emitting, which guards
// Request.position.
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
	// New requests are at the back, behind all requests whose position was reported once.
	first := len(k.queue)
	for first > n && k.queue[first-1].position == 0 {
		first--
	}
	for i := first; i < len(k.queue); i++ {
		tell(i)
	}
	return list
}

// queueMoved wakes announce, because positions in the queue may have changed.
func (k *Kernel) queueMoved() {
	select {
	case k.moved <- struct{}{}:
	default:
	}
}
