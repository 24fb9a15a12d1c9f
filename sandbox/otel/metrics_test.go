package otel_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/otel"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// collected returns the values of all metrics: the name and attributes of each, with its value or, for
// a histogram, its count.
func collected(t *testing.T, reader *sdkmetric.ManualReader) (all []string) {
	t.Helper()
	var data metricdata.ResourceMetrics
	must.Do(t, reader.Collect(t.Context(), &data))
	add := func(name string, set attribute.Set, value any) {
		line := name
		for _, a := range set.ToSlice() {
			line += " " + a.Value.String()
		}
		all = append(all, fmt.Sprint(line, " = ", value))
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch values := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range values.DataPoints {
					if m.Unit != "s" || p.Sum <= 0 || p.Sum > patience.Limit.Seconds() {
						t.Errorf("%s: %v %s in all", m.Name, p.Sum, m.Unit)
					}
					add(m.Name, p.Attributes, p.Count)
				}
			case metricdata.Gauge[int64]:
				for _, p := range values.DataPoints {
					add(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Sum[int64]:
				for _, p := range values.DataPoints {
					add(m.Name, p.Attributes, p.Value)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// canceling is a writer that ends a context.
type canceling context.CancelFunc

func (c canceling) Write(p []byte) (int, error) {
	c()
	return len(p), nil
}

// TestMetrics checks what calls, a pool and a service report.
func TestMetrics(t *testing.T) {
	cloud := sandboxtest.New(t)
	reader := sdkmetric.NewManualReader()
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	client, err := sandbox.NewClient(cloud.Option(), otel.WithTracing(nil, &otel.Params{Meters: meters}))
	must.Do(t, err)
	defer client.Close()
	stopService, err := otel.ObserveService(meters, client)
	must.Do(t, err)
	sb, err := client.Create(t.Context(), sandbox.WithInternet(false))
	must.Do(t, err)
	for _, command := range []string{"true", "true", "exit 3"} {
		_, _ = sb.Commands.Run(t.Context(), command, nil)
	}
	canceled, cancel := context.WithCancel(t.Context())
	_, _ = sb.Commands.Run(canceled, "echo begun; sleep 1000", &sandbox.CommandParams{Stdout: canceling(cancel)})
	for _, code := range []string{"1", "1/0"} {
		_, _ = sb.RunCode(t.Context(), code, nil)
	}
	_, err = sb.Commands.Run(t.Context(), "curl -s http://denied.test; true", nil)
	must.Do(t, err)
	if _, err := client.Connect(t.Context(), "i0123456789abcdefghijk"); err == nil {
		t.Error("there is a sandbox that was never made")
	}

	pool, err := client.NewPool(&sandbox.PoolParams{Warm: 1})
	must.Do(t, err)
	stopPool, err := otel.ObservePool(meters, "own", pool)
	must.Do(t, err)
	taken, err := pool.Get(t.Context())
	must.Do(t, err)
	patience.Until(t, "the next sandbox of the pool is ready", func() bool { return pool.Stats().Warm == 1 })
	want := []string{
		"e2b.code.duration = 1", "e2b.code.duration exception = 1",
		"e2b.command.duration = 3", "e2b.command.duration canceled = 1", "e2b.command.duration exit = 1",
		"e2b.connect.duration gone = 1", "e2b.connections.refused = 1", "e2b.create.duration = 3",
		"e2b.pool.events own created = 2", "e2b.pool.events own discarded = 0", "e2b.pool.events own failed = 0", "e2b.pool.events own taken = 1",
		"e2b.pool.sandboxes own in_use = 1", "e2b.pool.sandboxes own starting = 0", "e2b.pool.sandboxes own warm = 1", "e2b.pool.waiting own = 0",
		"e2b.sandboxes paused = 0", "e2b.sandboxes running = 3",
	}
	var got []string
	patience.Until(t, "the refused connection is an event", func() bool {
		got = collected(t, reader)
		return slices.Contains(got, "e2b.connections.refused = 1")
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must.Do(t, sb.Close())
	must.Do(t, taken.Close())
	patience.Until(t, "the ends are events", func() bool { return slices.Contains(collected(t, reader), "e2b.sandboxes.ended killed = 2") })
	must.Do(t, stopPool())
	must.Do(t, pool.Close())
	must.Do(t, stopService())
	for _, line := range collected(t, reader) {
		if line == "e2b.sandboxes running = 0" || line == "e2b.pool.waiting own = 0" {
			t.Errorf("%q is reported after the end", line)
		}
	}
}
