//go:build linux

package envd

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

const (
	// maxKeptOutput is the number of bytes of a process's newest output that are kept for a client that
	// connects again.
	maxKeptOutput = 1 << 20
	// maxOnTheWay bounds the bytes on the way to a client that connects again after a cut. They are
	// kept until the client has reported that it has received them, even if they are more than
	// maxKeptOutput.
	maxOnTheWay = 2 * protocol.OutputStep
	// scarceOnTheWay replaces maxOnTheWay while running processes use more than half of maxAllKept.
	scarceOnTheWay = protocol.OutputStep / 2
	// maxAllKept bounds the memory of the kept output of all processes of a sandbox, including the
	// memory that waits to be sent again.
	maxAllKept = 16 << 20
	// maxReplays bounds the memory that waits to be sent again. Output that a client has not received
	// takes no more, so that it can always be sent again.
	maxReplays = maxAllKept / 2
	// maxPieces bounds the number of pieces of the kept output of a process. It takes effect if a
	// process writes a few bytes to stdout and stderr in turn.
	maxPieces = 16 << 10
	// keptFor is the time for which the output of an ended process is kept.
	keptFor = time.Minute
	// returnLimit bounds the time that a process waits for a client to connect again after a cut. The
	// process waits only when further output would displace output that the client has not received.
	returnLimit = 5 * time.Second

	// sharedFrom is the least number of bytes of a chunk that is kept without a copy. Smaller chunks
	// are copied, because a chunk always has a buffer of maxChunk bytes.
	sharedFrom = maxChunk / 2
	firstRoom  = 512 // size of the first buffer for copies
)

const (
	chunkCost = int64(unsafe.Sizeof(chunk{}))
	pieceCost = int64(unsafe.Sizeof(piece{}))

	// maxAddCost is the most memory that add needs: a new buffer, and a piece in each of two buffers.
	maxAddCost = chunkCost + 2*pieceCost
)

// futureError means that a client requested output from an offset that the process has not reached.
type futureError struct{ from, next int64 }

func (e *futureError) Error() string {
	return fmt.Sprintf("byte %d of the output is yet to come: the process has written %d bytes", e.from, e.next)
}

var errTooManyReplays = fmt.Errorf("too much output waits to be sent again: the bound is %d MiB of a sandbox", maxReplays>>20)

// piece is a part of the output of one stream.
type piece struct {
	of   stream
	data []byte
	in   *chunk // contains data; nil: data has a buffer of its own
	cost int64  // bytes of memory
}

func (p *piece) hold() {
	if p.in != nil {
		p.in.refs.Add(1)
	}
}

func (p *piece) release() {
	if p.in != nil {
		p.in.release()
	}
}

// kept is the newest output of a process. The mutex of the output guards it. It allocates no memory
// before the first byte, and its buffers grow with the output.
type kept struct {
	budget *budget
	cost   atomic.Int64 // bytes of memory

	pieces      []piece // oldest first
	first, next int64   // offsets of the oldest kept byte, and of the next byte that the process writes

	// Small chunks are copied to room.
	room   []byte
	tail   *chunk // contains room; nil: room is in a buffer of its own
	size   int    // size of the newest buffer
	joined bool   // the newest piece ends where room begins

	ended bool // cost is part of budget.left
}

// add keeps the data of a chunk, and trims the earlier output to the newest limit bytes.
func (k *kept) add(c *chunk, limit int64) {
	k.next += int64(len(c.data))
	if len(c.data) >= sharedFrom {
		c.refs.Add(1)
		k.push(piece{of: c.of, data: c.data, in: c, cost: chunkCost + pieceCost}, false)
	} else {
		k.copy(c.of, c.data)
	}
	k.trim(limit)
}

// trim drops the oldest pieces that are not needed for the newest limit bytes, or that exceed maxPieces.
func (k *kept) trim(limit int64) {
	for len(k.pieces) > 1 && (k.next-k.first-int64(len(k.pieces[0].data)) >= limit || len(k.pieces) > maxPieces) {
		k.drop()
	}
}

func (k *kept) copy(of stream, data []byte) {
	for len(data) > 0 {
		cost := int64(0)
		if len(k.room) == 0 {
			cost = k.grow(len(data))
		}
		part := k.room[:copy(k.room, data)]
		k.room, data = k.room[len(part):], data[len(part):]
		if last := len(k.pieces) - 1; cost == 0 && k.joined && k.pieces[last].of == of {
			p := &k.pieces[last]
			p.data = p.data[:len(p.data)+len(part)]
			continue
		}
		if k.tail != nil {
			k.tail.refs.Add(1)
		}
		k.push(piece{of: of, data: part, in: k.tail, cost: pieceCost + cost}, true)
	}
}

// grow makes a new buffer for room, and returns the number of bytes of memory that it takes.
func (k *kept) grow(needed int) int64 {
	k.leaveTail()
	for k.size = max(firstRoom, min(2*k.size, maxChunk)); k.size < min(needed, maxChunk); {
		k.size *= 2
	}
	k.joined = false
	if k.size < maxChunk {
		k.room = make([]byte, k.size)
		return int64(k.size)
	}
	k.tail = newChunk(stdout)
	k.room = k.tail.buf[:]
	return chunkCost
}

func (k *kept) leaveTail() {
	if k.tail != nil {
		k.tail.release()
	}
	k.tail, k.room, k.joined = nil, nil, false
}

func (k *kept) push(p piece, joined bool) {
	k.pieces = append(k.pieces, p)
	k.joined = joined
	k.charge(p.cost)
}

func (k *kept) charge(cost int64) {
	k.cost.Add(cost)
	k.budget.used.Add(cost)
	if k.ended {
		k.budget.left.Add(cost)
	}
}

// end records that the process has ended.
func (k *kept) end() {
	k.ended = true
	k.budget.left.Add(k.cost.Load())
}

// drop drops the oldest piece.
func (k *kept) drop() {
	p := k.pieces[0]
	k.pieces[0] = piece{}
	k.pieces = k.pieces[1:]
	k.first += int64(len(p.data))
	k.charge(-p.cost)
	p.release()
	if len(k.pieces) == 0 {
		k.pieces = nil
		k.leaveTail()
	}
}

// from returns the kept output from an offset, which must not be less than first. The caller must
// release every piece.
func (k *kept) from(offset int64) (pieces []piece, cost int64) {
	at := k.next
	i := len(k.pieces)
	for i > 0 && at > offset {
		i--
		at -= int64(len(k.pieces[i].data))
	}
	pieces = slices.Clone(k.pieces[i:])
	for n := range pieces {
		pieces[n].hold()
		cost += pieces[n].cost
	}
	if at < offset {
		pieces[0].data = pieces[0].data[offset-at:]
	}
	return pieces, cost
}

// budget bounds the memory of the kept output of all processes of a sandbox. Its mutex is locked
// before the mutex of an output.
type budget struct {
	used    atomic.Int64 // bytes of memory
	replays atomic.Int64 // the bytes of used that wait to be sent again
	left    atomic.Int64 // the bytes of used for the kept output of ended processes

	mu    sync.Mutex
	live  map[*output]struct{}
	ended []*output // oldest first
}

func newBudget() *budget { return &budget{live: make(map[*output]struct{})} }

func (b *budget) join(o *output) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live[o] = struct{}{}
}

// end records that the process of an output has ended.
func (b *budget) end(o *output) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.live, o)
	b.ended = append(b.ended, o)
}

// scarce reports whether running processes use more than half of maxAllKept. The output of ended
// processes does not count, because reclaim drops it first.
func (b *budget) scarce() bool {
	return b.used.Load()-b.left.Load() > maxAllKept/2
}

// leave drops all kept output of o, and removes o from the budget.
func (b *budget) leave(o *output) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.live, o)
	b.ended = slices.DeleteFunc(b.ended, func(other *output) bool { return other == o })
	o.dropKept(true)
}

// reclaim drops kept output until the memory is within the bound. It first drops the output of ended
// processes, oldest first. Then it drops the oldest output of the process whose kept output needs the
// most memory.
func (b *budget) reclaim() {
	if b.used.Load() <= maxAllKept {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.ended) > 0 && b.used.Load() > maxAllKept {
		b.ended[0].dropKept(true)
		b.ended = b.ended[1:]
	}
	for b.used.Load() > maxAllKept {
		var largest *output
		for o := range b.live {
			if largest == nil || o.kept.cost.Load() > largest.kept.cost.Load() {
				largest = o
			}
		}
		if largest == nil || !largest.dropKept(false) {
			return // what is left waits to be sent again
		}
	}
}

// replay reserves memory for output that waits to be sent again. The caller releases the memory by a
// call with -cost.
func (b *budget) replay(cost int64) error {
	if b.replays.Add(cost) > maxReplays && cost > 0 {
		b.replays.Add(-cost)
		return errTooManyReplays
	}
	b.used.Add(cost)
	return nil
}
