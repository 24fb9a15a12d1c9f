package kernelconn

import "fmt"

// lose records that a context has lost its variables. At the time of the loss, there was no call
// that could report the loss. why is the reason for the loss.
func (ks *Kernels) lose(id, why string) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	ks.lost[ks.lossOf(id)] = why
}

// noteEnd records that the kernel of a context ended.
func (ks *Kernels) noteEnd(id string) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	ks.replaced[id] = true
}

// lossOf returns the key of a context in ks.lost. For the default context of a language, the key is
// the language, because another context may replace the default context. The caller holds ks.mu.
func (ks *Kernels) lossOf(id string) string {
	if language := ks.languages[id]; ks.defaults[language] == id {
		return language
	}
	return id
}

// Loss returns an error if a context lost its variables between two calls. It returns this error
// only once for each loss.
func (ks *Kernels) Loss(id string) error {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	key := ks.lossOf(id)
	why, ok := ks.lost[key]
	if !ok {
		return nil
	}
	delete(ks.lost, key)
	return fmt.Errorf("%w: %s", ErrRestarted, why)
}
