package edge

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// deadlined is an answer that counts the deadlines that it is given.
type deadlined struct {
	*httptest.ResponseRecorder
	set int
}

func (d *deadlined) SetReadDeadline(time.Time) error  { d.set++; return nil }
func (d *deadlined) SetWriteDeadline(time.Time) error { d.set++; return nil }
func (d *deadlined) EnableFullDuplex() error          { return nil }

// A request that has its answer leaves nothing with its sandbox: at a pause or the end
// nothing happens to the client's connection, which others use by then.
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
					if a.set != 0 {
						t.Errorf("an answered request was given %d deadlines, want none", a.set)
					}
				}
			})
		})
	}
}
