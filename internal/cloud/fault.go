package cloud

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"sync"
)

// A Fault is an answer that a request receives instead of its real one, for
// testing programs that should survive it.
type Fault struct {
	Method  string // "" is any
	Path    string // pattern for path.Match, such as "/sandboxes/*"; "": any
	Status  int    // 0 cuts the connection without an answer
	Message string
	Header  http.Header // sent with the answer
	Times   int         // how many times; 0: once
}

func (f *Fault) matches(r *http.Request) bool {
	if f.Method != "" && f.Method != r.Method {
		return false
	}
	matched, err := path.Match(f.Path, r.URL.Path)
	return f.Path == "" || err == nil && matched
}

// faults holds the faults that have not been used up.
type faults struct {
	mu   sync.Mutex
	list []*Fault
}

func (fs *faults) add(f Fault) {
	f.Times = max(f.Times, 1)
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.list = append(fs.list, &f)
}

// take returns the first fault that matches a request, if there is one.
func (fs *faults) take(r *http.Request) (Fault, bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	i := slices.IndexFunc(fs.list, func(f *Fault) bool { return f.matches(r) })
	if i < 0 {
		return Fault{}, false
	}
	f := fs.list[i]
	if f.Times--; f.Times == 0 {
		fs.list = slices.Delete(fs.list, i, i+1)
	}
	return *f, true
}

func (fs *faults) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := fs.take(r)
		switch {
		case !ok:
			next.ServeHTTP(w, r)
		case f.Status == 0:
			panic(http.ErrAbortHandler)
		default:
			for name, values := range f.Header {
				w.Header()[name] = values
			}
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			w.WriteHeader(f.Status)
			_ = json.NewEncoder(w).Encode(map[string]any{"code": f.Status, "message": f.Message})
		}
	})
}
