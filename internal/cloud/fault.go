package cloud

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"sync"

	"golang.org/x/net/http/httpguts"

	"github.com/e2bctl/e2bctl/internal/cloud/control"
)

// A Fault is an answer that a request receives instead of its real answer. Faults serve to test
// whether programs survive failures.
type Fault struct {
	Operation string // one of control.Operations; "": any request, including requests to sandboxes
	Method    string // HTTP method; "": any
	Path      string // pattern for path.Match, such as "/sandboxes/*"; "": any
	Status    int    // HTTP status; 0: close the connection without an answer
	Message   string
	Header    http.Header // sent with the answer
	Times     int         // number of requests that receive the fault; 0: 1; negative: no bound
}

// check returns an error if a fault is not valid.
func (f *Fault) check() error {
	if _, err := path.Match(f.Path, ""); err != nil {
		return fmt.Errorf("the path %.128q: %w", f.Path, err)
	}
	if f.Operation != "" && !slices.Contains(control.Operations(), f.Operation) {
		return fmt.Errorf("there is no operation %.64q", f.Operation)
	}
	for name, values := range f.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("the header %.64q: it is not a name of a header", name)
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				return fmt.Errorf("the header %s: %.128q cannot be the value of a header", name, value)
			}
		}
	}
	if f.Status != 0 && (f.Status < 200 || f.Status > 599) {
		return fmt.Errorf("the status %d: want 0, or 200 to 599", f.Status)
	}
	return nil
}

func (f *Fault) matches(r *http.Request, operation string) bool {
	if f.Operation != operation || f.Method != "" && f.Method != r.Method {
		return false
	}
	matched, _ := path.Match(f.Path, r.URL.Path) // check has verified the pattern
	return f.Path == "" || matched
}

// faults holds the faults that are not used up.
type faults struct {
	mu   sync.Mutex
	list []*waitingFault
}

type waitingFault struct {
	Fault
	met bool // a request has received the fault
}

func (fs *faults) add(f Fault) {
	if f.Times == 0 {
		f.Times = 1
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.list = append(fs.list, &waitingFault{Fault: f})
}

// unmet returns the faults that no request has received.
func (fs *faults) unmet() (list []Fault) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.list {
		if !f.met {
			list = append(list, f.Fault)
		}
	}
	return list
}

// take returns the first fault that matches a request. If no fault matches, it returns false.
func (fs *faults) take(r *http.Request, operation string) (Fault, bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	i := slices.IndexFunc(fs.list, func(f *waitingFault) bool { return f.matches(r, operation) })
	if i < 0 {
		return Fault{}, false
	}
	f := fs.list[i]
	f.met = true
	if f.Times > 0 {
		f.Times--
	}
	if f.Times == 0 {
		fs.list = slices.Delete(fs.list, i, i+1)
	}
	return f.Fault, true
}

// handler answers the requests that match a fault without an operation. next answers all other
// requests.
func (fs *faults) handler(next http.Handler) http.Handler {
	return fs.operationHandler(func(*http.Request) string { return "" }, next)
}

// operationHandler answers the requests that match a fault for their operation. next answers all
// other requests.
func (fs *faults) operationHandler(operation func(*http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := fs.take(r, operation(r))
		switch {
		case !ok:
			next.ServeHTTP(w, r)
		case f.Status == 0:
			panic(http.ErrAbortHandler)
		default:
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			for name, values := range f.Header {
				w.Header()[http.CanonicalHeaderKey(name)] = values
			}
			w.WriteHeader(f.Status)
			_ = json.NewEncoder(w).Encode(map[string]any{"code": f.Status, "message": f.Message})
		}
	})
}
