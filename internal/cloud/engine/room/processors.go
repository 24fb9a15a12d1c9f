//go:build linux

package room

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// processors decides which processors each sandbox runs on. A sandbox gets as many processors as it
// may use at the same time, so that programs that count processors do not start too many threads.
// Control groups enforce the limit, because programs themselves may choose other processors.
type processors struct {
	mu     sync.Mutex
	core   map[int]string // the core of each processor; it never changes
	on     map[int]int    // the number of sandboxes on each processor
	onCore map[string]int // the number of sandboxes on each core
}

// take reserves and returns n of the processors that the server may run on. It chooses processors of
// the cores with the fewest sandboxes. If there are at most n processors, it takes all of them. It
// returns nil if the machine does not list its processors.
func (p *processors) take(n int) []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &set); err != nil {
		return nil // there are more than fit into the set
	}
	var all []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	return p.choose(n, all, coreOf)
}

// choose is like take, but chooses among the processors in all. core returns the core of a
// processor.
func (p *processors) choose(n int, all []int, core func(cpu int) string) (chosen []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.core == nil {
		p.core, p.on, p.onCore = make(map[int]string), make(map[int]int), make(map[string]int)
	}
	for _, cpu := range all {
		if _, known := p.core[cpu]; !known {
			p.core[cpu] = core(cpu)
		}
	}
	for len(chosen) < n && len(all) > 0 {
		best := slices.MinFunc(all, func(a, b int) int {
			return cmp.Or(cmp.Compare(p.onCore[p.core[a]], p.onCore[p.core[b]]), cmp.Compare(p.on[a], p.on[b]), cmp.Compare(a, b))
		})
		all = slices.DeleteFunc(all, func(cpu int) bool { return cpu == best })
		chosen = append(chosen, best)
		p.on[best]++
		p.onCore[p.core[best]]++
	}
	slices.Sort(chosen)
	return chosen
}

// release frees the processors that take returned.
func (p *processors) release(taken []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cpu := range taken {
		p.on[cpu]--
		p.onCore[p.core[cpu]]--
	}
}

// coreOf returns a name for the core of a processor. The name is the list of the processors on that
// core; these share the core's execution units.
func coreOf(cpu int) string {
	text, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
	if err != nil {
		return fmt.Sprint(cpu)
	}
	return string(text)
}
