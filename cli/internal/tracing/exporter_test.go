package tracing

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pipetest"
)

// A counted is a connection that is no longer counted as open once it is closed.
type counted struct {
	net.Conn
	open   *atomic.Int32
	closed atomic.Bool
}

func (c *counted) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}

// exporterTo returns an exporter whose collector answers like this, its log, and the number of its
// open connections.
func exporterTo(t *testing.T, answer http.HandlerFunc) (*exporter, *strings.Builder, *atomic.Int32) {
	t.Helper()
	var log strings.Builder
	var open atomic.Int32
	e, err := newExporter("http://user:secret@collector.invalid", "", slog.New(slog.NewTextHandler(&log, nil)))
	must.Do(t, err)
	t.Cleanup(e.cancel)
	dial := pipetest.Serve(t, answer).DialContext
	e.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		open.Add(1)
		return &counted{Conn: conn, open: &open}, nil
	}
	return e, &log, &open
}

// checkLog checks that the log contains each part, or nothing if there are no parts, and never the
// password of the collector. It empties the log.
func checkLog(t *testing.T, log *strings.Builder, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(log.String(), part) {
			t.Errorf("got the log %q, want %q in it", log, part)
		}
	}
	if log.Len() > 0 && len(parts) == 0 || strings.Contains(log.String(), "secret") {
		t.Errorf("got the log %q, want nothing in it without a loss, and no password", log)
	}
	log.Reset()
}

// TestAnswersOfCollectors checks that the log reports the statuses that are errors alone, and that an
// exporter that has ended sends nothing and keeps no connection.
func TestAnswersOfCollectors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		status, requests := 0, 0
		e, log, open := exporterTo(t, func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.Header().Set("Location", "http://elsewhere.invalid")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "no room")
		})
		spans := tracetest.SpanStubs{{Name: "one"}, {Name: "two"}}.Snapshots()
		for _, tt := range []struct {
			status int
			parts  []string
		}{
			{200, nil},
			{299, nil},
			{300, []string{"spans were not sent", "spans=2", "user:xxxxx@collector.invalid", "300 Multiple Choices", "no room"}},
			{307, []string{"307 Temporary Redirect"}},
			{503, []string{"503 Service Unavailable"}},
		} {
			status = tt.status
			must.Do(t, e.ExportSpans(t.Context(), spans))
			checkLog(t, log, tt.parts...)
		}
		synctest.Wait()
		if requests != 5 || open.Load() != 1 {
			t.Errorf("got %d requests on %d connections, want 5 on one", requests, open.Load())
		}
		e.stop(nil)
		checkLog(t, log)
		must.Do(t, e.ExportSpans(t.Context(), spans))
		err := e.send(t.Context(), spans)
		synctest.Wait()
		if err == nil || err.Error() != "the command has ended" || requests != 5 || open.Load() != 0 {
			t.Errorf("after the end: got %v, %d requests and %d connections, want an error, 5 and none", err, requests, open.Load())
		}
		checkLog(t, log)
		e.stop(errors.New("too late"))
		checkLog(t, log, "spans were not sent in time", "user:xxxxx@collector.invalid", "too late")
	})
}

// TestSlowCollectors checks that a collector without an answer, and one whose answer does not end,
// have no connection after the time limit or the end of the command, and that only the time limit is a
// loss which the exporter reports by itself.
func TestSlowCollectors(t *testing.T) {
	t.Parallel()
	silent := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	endless := func(w http.ResponseWriter, _ *http.Request) {
		for _, err := w.Write(make([]byte, 1024)); err == nil; {
			_, err = w.Write(make([]byte, 1024))
		}
	}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		end    time.Duration // of the command, after the export has begun; 0: later
		want   time.Duration // that the export takes
		parts  []string
	}{
		"silent":           {silent, 0, exportTimeout, []string{"spans were not sent", context.DeadlineExceeded.Error()}},
		"silent until end": {silent, time.Second, time.Second, nil},
		"endless":          {endless, 0, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e, log, open := exporterTo(t, tt.answer)
				if tt.end > 0 {
					time.AfterFunc(tt.end, e.cancel)
				}
				begun := time.Now()
				must.Do(t, e.ExportSpans(t.Context(), nil))
				if took := time.Since(begun); took != tt.want {
					t.Errorf("the export took %v, want %v", took, tt.want)
				}
				synctest.Wait()
				if open.Load() != 0 {
					t.Errorf("got %d open connections, want none", open.Load())
				}
				checkLog(t, log, tt.parts...)
			})
		})
	}
}
