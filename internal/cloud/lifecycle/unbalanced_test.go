package lifecycle

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// Unbalanced returns the counters of a registry that differ from the sums over its records. No
// sandbox may be launched meanwhile.
func (r *Registry) Unbalanced() (wrong []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wants := func(what string, got, want any) {
		if !reflect.DeepEqual(got, want) {
			wrong = append(wrong, fmt.Sprintf("got %v %s, want %v", got, what, want))
		}
	}
	var places, running, kept int
	var frozen ledger
	moving := false
	for id, rec := range r.records {
		if rec.placed {
			places++
		}
		if rec.frozen != nil {
			frozen.sandboxes++
			frozen.memory += *rec.frozen
		}
		if rec.kept != nil {
			kept++
		}
		if rec.State == Running {
			running++
		}
		moving = moving || rec.transition != nil || rec.State == Killing
		if rec.transition == nil && (rec.State == Running || rec.State == Paused) {
			wants("as whether "+id+" has a place", rec.placed, rec.State == Running)
			wants("as whether "+id+" keeps its processes", rec.frozen != nil, rec.State == Paused && rec.instance != nil && !rec.instance.Suspends())
		}
	}
	wants("places", r.places, places)
	wants("running", len(r.running), running)
	wants("frozen", r.frozen, frozen)
	answered := 0
	for _, a := range r.attempts.byKey {
		if a.sb != nil {
			answered++
		}
	}
	wants("idempotency keys in order", len(r.attempts.order), answered)
	wants("ends in order", len(r.ended.order), len(r.ended.entries))
	if !moving {
		wants("kept", r.kept, kept)
		wants("in the lists", len(r.up)+len(r.down), len(r.records))
	}
	if r.closed {
		wants("places after the end", places, 0)
		wants("frozen after the end", frozen, ledger{})
	}
	return wrong
}

// Misreported returns the launched sandboxes for which a closed registry has not called
// Options.Ended exactly once. For a sandbox that still exists and is paused, the registry must not
// have called it.
func (r *Registry) Misreported(launched []string, ended map[string]int) (wrong []string) {
	for _, id := range launched {
		want := 1
		if r.records[id] != nil {
			want = 0
		}
		if ended[id] != want {
			wrong = append(wrong, fmt.Sprintf("got told %d times that %s has ended, want %d", ended[id], id, want))
		}
	}
	return wrong
}

// Leftover returns the leftovers of a closed registry in the directory of its store. These are
// layers with a holder that neither a record nor held names, and directories that no record names.
func (r *Registry) Leftover(dir string, held map[string]int) (wrong []string) {
	r.store.Wait()
	sandboxes, err := r.store.Records(store.Sandboxes)
	all, errOfLayers := r.store.Records(store.Layers)
	if err != nil || errOfLayers != nil {
		return nil // the store was closed first, as if the server had been killed
	}
	named, directories := map[string]int{}, 0
	for id, n := range held {
		named[id] += n
	}
	for _, entry := range sandboxes {
		var s saved
		if json.Unmarshal(entry.Value, &s) == nil {
			for _, id := range s.Request.Layers {
				named[id]++
			}
		}
	}
	for _, entry := range append(sandboxes, all...) {
		if entry.Dir != "" {
			directories++
		}
	}
	for parent, want := range map[string]int{"files": directories, "new": 0, "trash": 0} {
		if entries, err := os.ReadDir(filepath.Join(dir, parent)); len(entries) != want {
			wrong = append(wrong, fmt.Sprintf("got %d directories in %s (%v), want %d", len(entries), parent, err, want))
		}
	}
	ran, err := r.store.Records(store.Running)
	if err != nil {
		return append(wrong, err.Error())
	}
	for _, entry := range ran {
		if why := r.ended.notFound(entry.ID).Reason; r.records[entry.ID] != nil || why != ServerGone {
			wrong = append(wrong, fmt.Sprintf("the store has that %s ran until the end, which is paused or ended because of %q", entry.ID, why))
		}
	}
	holders, known := holdersOf(r.layers)
	for _, entry := range all {
		if known && holders[entry.ID] != named[entry.ID] {
			wrong = append(wrong, fmt.Sprintf("got %d holders of layer %s, want %d", holders[entry.ID], entry.ID, named[entry.ID]))
		}
	}
	return wrong
}

// holdersOf returns the number of holders of each layer. known is false if there are
// unreadable records of holders.
func holdersOf(set *layers.Set) (holders map[string]int, known bool) {
	set.Needs("") // waits until earlier calls have taken effect
	holders = map[string]int{}
	of := reflect.ValueOf(set).Elem()
	for each := of.FieldByName("layers").MapRange(); each.Next(); {
		holders[each.Key().String()] = int(each.Value().Elem().FieldByName("holders").Int())
	}
	return holders, !of.FieldByName("unknown").Bool()
}
