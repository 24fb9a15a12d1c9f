package link

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// egress dials nothing but pipes; others are the ends that the outside has.
type egress struct {
	closed bool
	others chan net.Conn
}

func (e *egress) Dial(context.Context, string, uint16) (net.Conn, error) {
	ours, other := net.Pipe()
	e.others <- other
	return ours, nil
}

func (*egress) Connect(context.Context, *net.TCPConn) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}
func (*egress) Answer(context.Context, []byte) []byte { return nil }
func (e *egress) Closed() bool                        { return e.closed }

// TestSlots takes one less than the bound, the bound and one more.
func TestSlots(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint64]int{0: 1, 1: 1, MaxStreams: MaxStreams, MaxStreams + 1: MaxStreams} {
		if got := cap(NewSlots(n)); got != want {
			t.Errorf("%d slots: got %d, want %d", n, got, want)
		}
	}
	s := NewSlots(2)
	release, err := s.Take()
	must.Do(t, err)
	_, err = s.Take()
	must.Do(t, err)
	_, err = s.Take()
	must.Is(t, err, engine.ErrTooMany)
	release()
	release() // counts once
	_, err = s.Take()
	must.Do(t, err)
	_, err = s.Take()
	must.Is(t, err, engine.ErrTooMany)
}

// TestPortSlots checks that the ports of the owner answer when programs' connections take all
// others, and the other way round.
func TestPortSlots(t *testing.T) {
	t.Parallel()
	s := NewPortSlots(1, 1)
	for _, port := range []int{8080, 49983, 49999, 8888} {
		_, err := s.Take(port)
		if first := port == 8080 || port == 49983; (err == nil) != first {
			t.Errorf("port %d: got %v", port, err)
		}
	}
}

// TestStatuses checks that an error of the daemon reaches the server as itself.
func TestStatuses(t *testing.T) {
	t.Parallel()
	for _, err := range []error{engine.ErrTooMany, engine.ErrPortClosed} {
		must.Is(t, StatusError(StatusOf(err)), err)
	}
	must.Is(t, StatusError(StatusOf(io.EOF)), engine.ErrPortClosed)
	must.Is(t, StatusError(77), engine.ErrPortClosed)
	must.Do(t, StatusError(StatusConnected))
}

// TestAccess checks that connections end with the setting that permitted them.
func TestAccess(t *testing.T) {
	t.Parallel()
	e := &egress{others: make(chan net.Conn, 1)}
	a := NewAccess(t.Context(), e)
	var heard []bool
	a.OnChange(func(open bool) { heard = append(heard, open) })
	open := func() (ended <-chan struct{}) {
		t.Helper()
		grant := a.Grant()
		outside, err := grant.Dial("host.test", 1)
		must.Do(t, err)
		other := <-e.others
		inside, program := net.Pipe()
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			grant.Join(outside, inside)
			other.Close()
			program.Close()
		}()
		return joined
	}
	for _, end := range []func(){
		func() { a.SetEgress(e) },
		a.Suspend,
		func() { a.Restore(); a.SetEgress(nil) },
	} {
		a.SetEgress(e)
		a.Restore()
		ended := open()
		end()
		<-ended
	}
	_, err := a.Grant().Dial("host.test", 1)
	must.Is(t, err, ErrInternetOff)
	if !IsDenied(err) || IsDenied(io.EOF) {
		t.Errorf("no access is a denial, and the end of a file is none: %v", err)
	}
	a.SetEgress(&egress{closed: true})
	if want := []bool{true, false}; !slices.Equal([]bool{heard[0], heard[len(heard)-1]}, want) {
		t.Errorf("first and last told: got %v, want %v", heard, want)
	}
	a.SetEgress(e)
	a.Suspend()
	n := len(heard)
	a.Suspend()
	if len(heard) != n || heard[n-1] || a.Grant().Context.Err() == nil {
		t.Errorf("suspended: told %v", heard)
	}
	a.SetEgress(e)
	if heard[len(heard)-1] || a.Grant().Context.Err() == nil {
		t.Error("another egress opened access that is suspended")
	}
}

// TestAccessEndsWithItsLife checks that nothing is permitted after the sandbox's end.
func TestAccessEndsWithItsLife(t *testing.T) {
	t.Parallel()
	life, end := context.WithCancel(t.Context())
	a := NewAccess(life, &egress{})
	end()
	a.SetEgress(&egress{})
	if a.Grant().Context.Err() == nil {
		t.Error("access after the end")
	}
}

// TestEntrance checks that only connections that are open are cut, each once.
func TestEntrance(t *testing.T) {
	t.Parallel()
	var e Entrance
	cut := map[string]int{}
	enter := func(name string) func() {
		t.Helper()
		leave, err := e.Enter(func() { cut[name]++ })
		must.Do(t, err)
		return leave
	}
	left := enter("left")
	left()
	stays := enter("stays")
	enter("other")
	e.Shut()
	e.Shut()
	stays()
	if cut["left"] != 0 || cut["stays"] != 1 || cut["other"] != 1 {
		t.Errorf("cut: %v", cut)
	}
	_, err := e.Enter(func() {})
	must.Is(t, err, engine.ErrFrozen)
	if !e.IsShut() {
		t.Error("it is not shut")
	}
	e.Open()
	enter("later")
	e.Shut()
	if cut["later"] != 1 || cut["other"] != 1 {
		t.Errorf("cut: %v", cut)
	}
}

// still is a standstill whose steps are noted.
type still struct {
	Standstill
	steps   []string
	done    chan struct{}
	failing error // of Stop
	lasting error // of the step that lets processes run again
}

func newStill(t *testing.T) *still {
	t.Helper()
	s := &still{done: make(chan struct{})}
	s.Standstill = NewStandstill(s.done)
	s.In, s.Out = &Entrance{}, NewAccess(t.Context(), &egress{})
	_, err := s.In.Enter(func() { s.steps = append(s.steps, "cut in") })
	must.Do(t, err)
	s.Out.OnChange(func(open bool) {
		s.steps = append(s.steps, map[bool]string{true: "allow out", false: "cut out"}[open])
	})
	s.steps = nil
	s.Stop = func(context.Context) (func(context.Context) error, error) {
		s.steps = append(s.steps, "stop")
		return func(context.Context) error {
			s.steps = append(s.steps, "go on")
			return s.lasting
		}, s.failing
	}
	return s
}

// did checks the steps since the last call.
func (s *still) did(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(s.steps, want) {
		t.Errorf("got %q, want %q", s.steps, want)
	}
	s.steps = nil
}

// TestStandstill checks the order of the steps: nothing enters a sandbox that is being stopped,
// and no running program sees its connections refused.
func TestStandstill(t *testing.T) {
	t.Parallel()
	s := newStill(t)
	must.Do(t, s.Thaw(t.Context()))
	s.did(t)
	must.Do(t, s.Hold(t.Context()))
	s.did(t, "stop")
	must.Do(t, s.Hold(t.Context()))
	s.did(t)
	must.Do(t, s.Freeze(t.Context()))
	s.did(t, "cut in", "cut out")
	s.lasting = io.EOF
	must.Is(t, s.Thaw(t.Context()), io.EOF)
	if !s.In.IsShut() || !s.Stopped() {
		t.Error("it goes on after an error")
	}
	s.did(t, "allow out", "go on")
	s.lasting = nil
	must.Do(t, s.Thaw(t.Context()))
	s.did(t, "go on")
	if s.In.IsShut() || s.Stopped() || s.Out.Grant().Context.Err() != nil {
		t.Error("it does not go on after a thaw")
	}
	must.Do(t, s.Freeze(t.Context()))
	s.did(t, "stop", "cut out")
}

// TestStandstillFails checks that connections are allowed after processes could not be stopped.
func TestStandstillFails(t *testing.T) {
	t.Parallel()
	s := newStill(t)
	s.failing = io.EOF
	must.Is(t, s.Freeze(t.Context()), io.EOF)
	s.did(t, "cut in", "stop")
	if s.In.IsShut() || s.Stopped() || s.Out.Grant().Context.Err() != nil {
		t.Error("it does not go on")
	}
}

// TestStandstillEnds checks that no call waits for a sandbox that has ended, or beyond its context.
func TestStandstillEnds(t *testing.T) {
	t.Parallel()
	s := newStill(t)
	end, err := s.Turn(t.Context())
	must.Do(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrNoProgress)
	must.Is(t, s.Freeze(ctx), io.ErrNoProgress)
	waiting := make(chan error)
	go func() { waiting <- s.Thaw(context.Background()) }()
	close(s.done)
	must.Is(t, <-waiting, engine.ErrGone)
	end()
	s.Last()
	must.Is(t, s.Hold(t.Context()), engine.ErrGone)
	s.did(t)
}

// TestStandstillOfTheDead checks that a sandbox that ends while it is stopped is gone, however
// stopping it went.
func TestStandstillOfTheDead(t *testing.T) {
	t.Parallel()
	for _, failing := range []error{nil, io.EOF} {
		s := newStill(t)
		s.Stop = func(context.Context) (func(context.Context) error, error) {
			close(s.done)
			return nil, failing
		}
		must.Is(t, s.Freeze(t.Context()), engine.ErrGone)
		if s.Stopped() {
			t.Error("the dead stand still")
		}
	}
}
