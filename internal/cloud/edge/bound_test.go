package edge

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// deadlined is a ResponseWriter that remembers its deadlines.
type deadlined struct {
	*httptest.ResponseRecorder
	read, write []time.Time
}

func (d *deadlined) SetReadDeadline(t time.Time) error  { d.read = append(d.read, t); return nil }
func (d *deadlined) SetWriteDeadline(t time.Time) error { d.write = append(d.write, t); return nil }
func (d *deadlined) EnableFullDuplex() error            { return nil }

// TestAnsweredIsLetGo checks that a request is no longer bound to its sandbox after the answer. A
// pause or the end of the sandbox does not affect the client's connection, which other requests may
// use by then.
func TestAnsweredIsLetGo(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Router){
		"pause": func(rt *Router) { rt.Pause(id) }, "end": func(rt *Router) { rt.Remove(id) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rt := New(Options{Domain: "cloud.test:4000"})
				rt.Add(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) {
					near, far := net.Pipe()
					go func() {
						_, _ = http.ReadRequest(bufio.NewReader(far))
						_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ntext")
						_ = far.Close()
					}()
					return near, nil
				}})
				answers := make([]*deadlined, 3)
				for i := range answers {
					answers[i] = &deadlined{ResponseRecorder: httptest.NewRecorder()}
					r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://3000-"+id+".localhost/", nil)
					rt.ServeHTTP(answers[i], r)
					if answers[i].Body.String() != "text" {
						t.Fatalf("got %d %q, want text", answers[i].Code, answers[i].Body)
					}
				}
				end(rt)
				synctest.Wait()
				for _, a := range answers {
					if len(a.read)+len(a.write) != 0 {
						t.Errorf("an answered request was given the deadlines %v and %v, want none", a.read, a.write)
					}
				}
			})
		})
	}
}

// TestUnansweredIsCutOff checks that a pause cuts off a running request at once, in both
// directions, even if the client neither sends nor reads. The test runs before the parallel ones, because
// these wait in real time for a request that is not cut off.
func TestUnansweredIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := New(Options{})
		rt.Add(Sandbox{ID: id})
		defer rt.Remove(id)
		w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
		r, unbind := rt.lookup(id).spell().bind(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		rt.Pause(id)
		<-r.Context().Done()
		func() {
			defer func() {
				if got := recover(); !aborted(got) {
					t.Errorf("got %v, want that the request is aborted", got)
				}
			}()
			unbind()
		}()
		if now := []time.Time{time.Now()}; !slices.EqualFunc(w.read, now, time.Time.Equal) || !slices.EqualFunc(w.write, now, time.Time.Equal) {
			t.Errorf("got the deadlines %v to read and %v to write, want %v for both", w.read, w.write, now)
		}
	})
}
