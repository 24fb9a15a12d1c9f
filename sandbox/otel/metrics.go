package otel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/e2bctl/e2bctl/sandbox"
)

// These are the attributes of metrics. Each has few values.
const (
	keyErrorType = attribute.Key("error.type")
	keyState     = attribute.Key("e2b.state")
	keyReason    = attribute.Key("e2b.reason")
	keyPool      = attribute.Key("e2b.pool.name")
)

// eventsPause is the pause before the events of a service are requested again after an error.
const eventsPause = 5 * time.Second

// durations are the histograms of the times that calls take.
type durations struct{ create, connect, command, code metric.Float64Histogram }

func newDurations(p metric.MeterProvider) durations {
	if p == nil {
		p = noop.NewMeterProvider()
	}
	m := p.Meter(scope)
	histogram := func(call, what string) metric.Float64Histogram {
		h, err := m.Float64Histogram("e2b."+call+".duration", metric.WithUnit("s"), metric.WithDescription("Time to "+what+"."))
		if err != nil {
			otel.Handle(err)
		}
		return h
	}
	return durations{
		create: histogram("create", "create a sandbox"), connect: histogram("connect", "connect to a sandbox"),
		command: histogram("command", "run a command"), code: histogram("code", "run code"),
	}
}

// timed begins to measure a call. The caller must call the result with the error of the call.
func timed(ctx context.Context, h metric.Float64Histogram) func(error) {
	begun := time.Now()
	return func(err error) {
		var attributes []attribute.KeyValue
		if err != nil {
			attributes = append(attributes, keyErrorType.String(errorType(err)))
		}
		// OpenTelemetry drops what is recorded with a context that has ended.
		h.Record(context.WithoutCancel(ctx), time.Since(begun).Seconds(), metric.WithAttributes(attributes...))
	}
}

// errorType returns the kind of an error. There are few kinds.
func errorType(err error) string {
	_, raised := errors.AsType[*sandbox.ExecutionError](err)
	_, exit := errors.AsType[*sandbox.ExitError](err)
	switch {
	case raised:
		return "exception"
	case exit:
		return "exit"
	case errors.Is(err, sandbox.ErrGone):
		return "gone"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "_OTHER"
}

// ObservePool reports the state of a pool to m: the gauge e2b.pool.sandboxes with the attribute
// e2b.state (warm, starting, in_use), the gauge e2b.pool.waiting, which counts calls of Get that wait,
// and the counter e2b.pool.events with the attribute e2b.state (created, failed, taken, discarded). name
// is the attribute e2b.pool.name of all of them. The caller must call stop before it closes the pool.
func ObservePool(m metric.MeterProvider, name string, p *sandbox.Pool) (stop func() error, err error) {
	meter := m.Meter(scope)
	sandboxes, err := meter.Int64ObservableGauge("e2b.pool.sandboxes", metric.WithUnit("{sandbox}"), metric.WithDescription("Sandboxes of a pool."))
	if err != nil {
		return nil, fmt.Errorf("otel: observe a pool: %w", err)
	}
	waiting, err := meter.Int64ObservableGauge("e2b.pool.waiting", metric.WithUnit("{call}"), metric.WithDescription("Calls that wait for a sandbox of a pool."))
	if err != nil {
		return nil, fmt.Errorf("otel: observe a pool: %w", err)
	}
	events, err := meter.Int64ObservableCounter("e2b.pool.events", metric.WithUnit("{sandbox}"), metric.WithDescription("Sandboxes that a pool created, failed to create, handed out or discarded."))
	if err != nil {
		return nil, fmt.Errorf("otel: observe a pool: %w", err)
	}
	of := keyPool.String(name)
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		stats := p.Stats()
		in := func(state string) metric.MeasurementOption { return metric.WithAttributes(of, keyState.String(state)) }
		o.ObserveInt64(sandboxes, int64(stats.Warm), in("warm"))
		o.ObserveInt64(sandboxes, int64(stats.Starting), in("starting"))
		o.ObserveInt64(sandboxes, int64(stats.InUse), in("in_use"))
		o.ObserveInt64(waiting, int64(stats.Waiting), metric.WithAttributes(of))
		o.ObserveInt64(events, stats.Created, in("created"))
		o.ObserveInt64(events, stats.Failed, in("failed"))
		o.ObserveInt64(events, stats.Taken, in("taken"))
		o.ObserveInt64(events, stats.Discarded, in("discarded"))
		return nil
	}, sandboxes, waiting, events)
	if err != nil {
		return nil, fmt.Errorf("otel: observe a pool: %w", err)
	}
	return registration.Unregister, nil
}

// ObserveService reports the sandboxes of a service to m, those of other programs, too: the gauge
// e2b.sandboxes with the attribute e2b.state (running, paused), for which each collection lists all
// sandboxes, and two counters that begin at zero: e2b.sandboxes.ended with the attribute
// e2b.reason, and e2b.connections.refused, for which the events of the service are followed until stop
// is called. Only the local cloud has reasons and refused connections. An error of a list or of the
// events goes to OpenTelemetry's error handler; the events are then requested again after 5 seconds.
// The caller must call stop before it closes the client. stop waits for the last request.
func ObserveService(m metric.MeterProvider, c *sandbox.Client) (stop func() error, err error) {
	meter := m.Meter(scope)
	sandboxes, err := meter.Int64ObservableGauge("e2b.sandboxes", metric.WithUnit("{sandbox}"), metric.WithDescription("Sandboxes of the service."))
	if err != nil {
		return nil, fmt.Errorf("otel: observe a service: %w", err)
	}
	ended, err := meter.Int64Counter("e2b.sandboxes.ended", metric.WithUnit("{sandbox}"), metric.WithDescription("Sandboxes that ended."))
	if err != nil {
		return nil, fmt.Errorf("otel: observe a service: %w", err)
	}
	refused, err := meter.Int64Counter("e2b.connections.refused", metric.WithUnit("{connection}"), metric.WithDescription("Hosts that sandboxes tried to reach and may not."))
	if err != nil {
		return nil, fmt.Errorf("otel: observe a service: %w", err)
	}
	registration, err := meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		count := map[sandbox.SandboxState]int64{sandbox.StateRunning: 0, sandbox.StatePaused: 0}
		for info, err := range c.List(ctx, nil) {
			if err != nil {
				return err
			}
			count[info.State]++
		}
		for state, n := range count {
			o.ObserveInt64(sandboxes, n, metric.WithAttributes(keyState.String(string(state))))
		}
		return nil
	}, sandboxes)
	if err != nil {
		return nil, fmt.Errorf("otel: observe a service: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		followEvents(ctx, c, func(e sandbox.Event) {
			switch e.Type {
			case sandbox.EventKilled:
				ended.Add(ctx, 1, metric.WithAttributes(keyReason.String(e.Reason)))
			case sandbox.EventRefused:
				refused.Add(ctx, 1)
			}
		})
	}()
	return func() error {
		cancel()
		<-followed
		return registration.Unregister()
	}, nil
}

// followEvents calls seen for each event from now on, until ctx ends.
func followEvents(ctx context.Context, c *sandbox.Client, seen func(sandbox.Event)) {
	since := time.Now()
	for ctx.Err() == nil {
		goesOn := false // the first events of a stream may have been seen before
		for e, err := range c.Events(ctx, &sandbox.EventsParams{Types: []sandbox.EventType{sandbox.EventKilled, sandbox.EventRefused}, Follow: true}) {
			if err != nil {
				if ctx.Err() == nil {
					otel.Handle(err)
				}
				break
			}
			if goesOn = goesOn || e.Time.After(since); goesOn { // events may have the same time
				since = e.Time
				seen(e)
			}
		}
		select {
		case <-time.After(eventsPause):
		case <-ctx.Done():
		}
	}
}
