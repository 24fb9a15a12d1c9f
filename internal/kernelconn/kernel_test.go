package kernelconn

import (
	"context"
	"encoding/json"
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

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// mute is a connection whose writes can be made to fail.
type mute struct {
	net.Conn

	fails *atomic.Bool
	first func() // called before a write fails
}

var errMute = errors.New("mute")

func (m mute) Write(data []byte) (int, error) {
	if m.fails.Load() {
		m.first()
		return 0, errMute
	}
	return m.Conn.Write(data)
}

// muting makes the writes of the next connection of s fail once fails is set. Before, it calls before.
func muting(s *server, before func()) (fails *atomic.Bool) {
	first := true
	fails = new(atomic.Bool)
	dial := s.dialer.NetDialContext
	s.dialer = &websocket.Dialer{NetDialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil || !first {
			return conn, err
		}
		first = false
		return mute{conn, fails, before}, nil
	}}
	return fails
}

// TestWritesThatFail checks that a connection ends when something cannot be sent, and that the call is made over another
// one.
func TestWritesThatFail(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		fails := muting(s, func() {})
		s.kernel = reading(answerNext)
		ks := s.kernels()
		k, err := ks.Open(t.Context(), "", "")
		must.Do(t, err)
		fails.Store(true)
		began := time.Now()
		if _, err := k.send(silently("x")); !errors.Is(err, errStale) || !errors.Is(err, errMute) || !time.Now().Equal(began) {
			t.Errorf("got %v after %v, want %v because of %v at once", err, time.Since(began), errStale, errMute)
		}
		select {
		case <-k.Done():
		default:
			t.Error("the connection goes on")
		}
		if k.unfinished() != nil {
			t.Error("an execution is left")
		}
		if _, err := k.send(silently("x")); err != errStale { //nolint:errorlint // the error itself
			t.Errorf("over a connection that has ended: got %v, want %v", err, errStale)
		}
		if printed, err := run(cancelling(t, time.Minute), ks, "x", Handler{}); err != nil || printed != "x" {
			t.Errorf("got %q, %v, want the output of code over another connection", printed, err)
		}
	})
	onClock(t, func(t *testing.T, s *server) {
		fails := muting(s, func() {})
		s.kernel = reading(answerNext)
		k, err := s.kernels().Open(t.Context(), "", "")
		must.Do(t, err)
		if !k.write(jupyter.Control, "interrupt_request", jupyter.Header{}, json.RawMessage("{}")) {
			t.Error("a message was not sent")
		}
		fails.Store(true)
		if k.write(jupyter.Control, "interrupt_request", jupyter.Header{}, json.RawMessage("{}")) {
			t.Error("a message counts as sent, and was not")
		}
		synctest.Wait()
		if !k.isCut() {
			t.Error("the connection goes on")
		}
	})
}

// TestCodeThatIsTooBigWhileItIsSent checks the error of code whose rest cannot be sent, because the server has already refused
// it.
func TestCodeThatIsTooBigWhileItIsSent(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]error{websocket.CloseMessageTooBig: errTooBig, websocket.CloseGoingAway: errStale} {
		onClock(t, func(t *testing.T, s *server) {
			refuse := make(chan struct{})
			fails := muting(s, func() {
				close(refuse)
				<-time.After(time.Minute) // until the reader knows the reason
			})
			s.kernel = reading(func(k *jupytertest.Kernel, _ <-chan *jupyter.Message) {
				<-refuse
				_ = k.Socket.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""))
			})
			k, err := s.kernels().Open(t.Context(), "", "")
			must.Do(t, err)
			fails.Store(true)
			if _, err := k.send(silently("x")); !errors.Is(err, want) || errors.Is(err, errTooBig) != errors.Is(want, errTooBig) {
				t.Errorf("the server ends with %d: got %v, want %v", code, err, want)
			}
			if k.unfinished() != nil {
				t.Error("an execution is left")
			}
		})
	}
}

// TestCodeThatIsTooBig checks the error of code that the server refuses because of its size, unless the code already
// runs.
func TestCodeThatIsTooBig(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		begins bool
		code   int
		want   error
	}{
		"too big":          {false, websocket.CloseMessageTooBig, api.ErrInvalidArgument},
		"it runs":          {true, websocket.CloseMessageTooBig, ErrLost},
		"another end":      {false, websocket.CloseGoingAway, ErrLost},
		"another, it runs": {true, websocket.CloseGoingAway, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				first := true
				s.kernel = reading(func(k *jupytertest.Kernel, requests <-chan *jupyter.Message) {
					if first {
						first = false
						m := <-requests
						if tt.begins {
							k.Begin(m)
						}
						_ = k.Socket.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(tt.code, ""))
						return
					}
					answerNext(k, requests)
				})
				_, err := run(cancelling(t, time.Hour), s.kernels(), "x", Handler{})
				if big := tt.want == api.ErrInvalidArgument; !errors.Is(err, tt.want) || errors.Is(err, ErrNotSent) != big || first { //nolint:errorlint // of the table
					t.Errorf("got %v, want %v", err, tt.want)
				}
			})
		})
	}
}

// TestMessagesThatAreSent checks each field of the messages of a call, and the session of its websocket.
func TestMessagesThatAreSent(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		got := make(chan *jupyter.Message, 10)
		s.kernel = answeringAll(func(k *jupytertest.Kernel, m *jupyter.Message) {
			if got <- m; m.Header.MsgType == "input_reply" {
				return
			}
			k.Begin(m)
			if jupytertest.Code(m) == "user" {
				k.Ask(m, "?")
				got <- k.Next()
			}
			k.Reply(m, "ok")
			k.Status(m, "idle")
		})
		var sessions []string
		serve := s.kernel
		s.socket = func(w http.ResponseWriter, r *http.Request) {
			sessions = append(sessions, r.URL.Query().Get("session_id"))
			k, err := jupytertest.Upgrade(t, w, r)
			if err != nil {
				t.Error(err)
				return
			}
			defer k.Socket.Close()
			serve(k)
		}
		ks := s.kernelsOf(Options{Envs: map[string]string{"A": "1"}})
		envs := map[string]string{"B": "2"}
		var kinds []string
		_, err := ks.Execute(t.Context(), Call{Request: jupyter.ExecuteRequest{Code: "user", StoreHistory: true, StopOnError: true}, Envs: envs, Handler: Handler{
			Input:   func(context.Context, string, bool) (string, error) { return "yes", nil },
			Message: func(m *jupyter.Message) error { kinds = append(kinds, m.Header.MsgType); return nil },
		}})
		must.Do(t, err)
		if want := "status execute_input input_request status"; strings.Join(kinds, " ") != want {
			t.Errorf("the handler got %q, want %q", kinds, want)
		}
		quiet := func(code string) string {
			return `{"code":` + string(jupyter.Encode(code)) + `,"silent":true,"store_history":false,"user_expressions":{},"allow_stdin":false,"stop_on_error":false}`
		}
		for _, want := range []struct{ channel, kind, content string }{
			{jupyter.Shell, "execute_request", quiet(completeEnvs(map[string]string{"A": "1"}))},
			{jupyter.Shell, "execute_request", quiet(replaceEnvs(envs))},
			{jupyter.Shell, "execute_request", `{"code":"user","silent":false,"store_history":true,"user_expressions":{},"allow_stdin":true,"stop_on_error":true}`},
			{jupyter.Stdin, "input_reply", `{"value":"yes"}`},
			{jupyter.Shell, "execute_request", quiet(restoreEnvs)},
		} {
			m := patience.Receive(t, "a message", got)
			about := jupyter.Header{MsgType: want.kind, Session: sessions[0], Username: username, Version: jupyter.ProtocolVersion}
			got := m.Header
			got.MsgID, got.Date = "", ""
			if m.Channel != want.channel || got != about || sessions[0] == "" {
				t.Errorf("got %+v on %s, want %s on %s of session %q", m.Header, m.Channel, want.kind, want.channel, sessions[0])
			}
			if diff := cmp.Diff(want.content, string(m.Content)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", want.kind, diff)
			}
			if isAnswer := m.Channel == jupyter.Stdin; isAnswer != (m.Parent != jupyter.Header{}) {
				t.Errorf("%s has the parent %+v", want.kind, m.Parent)
			}
		}
	})
}

// TestQueuedBehindItsEnvironment checks that a call tells its handler only that another client's code comes first, while
// its environment is set.
func TestQueuedBehindItsEnvironment(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
			if jupytertest.Code(m) != "user" {
				k.Say(m, jupyter.IOPub, MessageQueued, map[string]int{"position": 1})
				k.Stream(m, "stdout", "not told")
			}
			k.Reply(m, "ok")
			k.Status(m, "idle")
		})
		var kinds []string
		mine := errors.New("mine")
		h := Handler{Message: func(m *jupyter.Message) error { kinds = append(kinds, m.Header.MsgType); return nil }}
		envs := map[string]string{"A": "1"}
		_, err := run(t.Context(), s.kernelsOf(Options{Envs: envs}), "user", h)
		must.Do(t, err)
		if diff := cmp.Diff([]string{MessageQueued, "status"}, kinds); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		h.Message = func(*jupyter.Message) error { return mine }
		ks := s.kernelsOf(Options{Envs: envs})
		if _, err := run(t.Context(), ks, "user", h); !errors.Is(err, ErrNotSent) || !errors.Is(err, mine) {
			t.Errorf("the handler fails: got %v, want %v because of %v", err, ErrNotSent, mine)
		}
		_, err = s.kernelsOf(Options{Envs: envs}).Execute(t.Context(), Call{Request: jupyter.ExecuteRequest{Code: "user"}})
		must.Do(t, err)
	})
}

// TestUnreadDeath checks the records when a kernel dies while no call reads its messages.
func TestUnreadDeath(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		used, doomed    bool
		content         string
		spent, replaced bool
		lost            string
	}{
		"alive":          {true, false, `{"execution_state":"busy"}`, false, false, ""},
		"used":           {true, false, `{"execution_state":"dead"}`, true, true, "its kernel died"},
		"with a reason":  {true, false, `{"execution_state":"dead","reason":"memory"}`, true, true, "memory"},
		"not used":       {false, false, `{"execution_state":"dead"}`, true, true, ""},
		"being replaced": {true, true, `{"execution_state":"dead"}`, false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				s.kernel = reading(answerNext)
				ks := s.kernels()
				k, err := ks.Open(t.Context(), "", "")
				must.Do(t, err)
				k.used, k.doomed = tt.used, tt.doomed
				k.unread(nil)
				k.unread(content("", jupyter.IOPub, "status", tt.content))
				synctest.Wait()
				if k.spent != tt.spent || ks.replaced[testContext] != tt.replaced || ks.lost["python"] != tt.lost || k.isCut() != tt.spent {
					t.Errorf("spent %v, replaced %v, lost %q, cut %v; want %+v", k.spent, ks.replaced, ks.lost, k.isCut(), tt)
				}
				if !tt.spent {
					return
				}
				// Only a call that had this connection before can meet it.
				must.Is(t, k.takeTurn(t.Context(), nil), errStale)
				if n := k.inTurn.Load(); n != 0 || len(k.turn) > 0 {
					t.Errorf("%d calls are in turn, want none", n)
				}
			})
		})
	}
}

// TestTurnIsGivenBack checks that a call that cannot begin leaves the turn to the next one.
func TestTurnIsGivenBack(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		s.kernel = jupytertest.Answering(printX)
		ks := s.kernels()
		k, err := ks.Open(t.Context(), "", "")
		must.Do(t, err)
		free := func(what string) {
			t.Helper()
			if n := k.inTurn.Load(); n != 0 || len(k.turn) > 0 || k.unfinished() != nil {
				t.Fatalf("%s: %d calls are in turn, and %d hold it, want none", what, n, len(k.turn))
			}
		}
		ks.lose(testContext, "why")
		_, err = run(t.Context(), ks, "x", Handler{})
		must.Is(t, err, ErrRestarted)
		free("variables that are lost")
		if k.used {
			t.Error("the kernel counts as used")
		}
		_, err = ks.Execute(WithWaiting(t.Context(), testSandbox, testContext), Call{})
		must.Is(t, err, ErrSameContext)
		free("code that waits for itself")
		_, err = run(t.Context(), ks, "x", Handler{})
		must.Do(t, err)
		free("code that ran")
		if _, err := k.ExecuteIfFree(t.Context(), jupyter.ExecuteRequest{}); err != nil || !k.used {
			t.Errorf("got %v, used %v, want code that ran", err, k.used)
		}
		free("code if nothing else runs")
		for range 2 * interruptTries { // the ones before are over
			e, err := k.send(silently(""))
			must.Do(t, err)
			k.leave(e)
			free("a request that was left")
		}
	})
}

// TestQuestionsOneByOne checks that the handler is called for each question after the answer to the one before it.
func TestQuestionsOneByOne(t *testing.T) {
	t.Parallel()
	var ended []error
	var calls []context.Context
	q := newQuestions(func(ctx context.Context, prompt string, _ bool) (string, error) {
		if calls = append(calls, ctx); prompt == "late" {
			<-ctx.Done()
			ended = append(ended, ctx.Err())
		}
		return prompt, nil
	})
	for _, prompt := range []string{"1", "2", "late", "3"} {
		m := content("", jupyter.Stdin, "input_request", `{"prompt":"`+prompt+`"}`)
		q.ask(t.Context(), m)
		if prompt == "late" {
			continue
		}
		a := patience.Receive(t, "an answer", q.answers)
		if late := q.answered(t.Context()); late != (a.value == "late") || late != (prompt == "3") {
			t.Fatalf("got %q for %q, too late: %v", a.value, prompt, late)
		} else if late {
			a = patience.Receive(t, "the next answer", q.answers)
			q.answered(t.Context())
		}
		if a.value != prompt {
			t.Fatalf("got %q, want %q", a.value, prompt)
		}
	}
	if len(ended) != 1 || q.cancel != nil || q.next != nil {
		t.Errorf("%d questions were cancelled, and %v is asked next; want one and none", len(ended), q.next)
	}
	for i, ctx := range calls {
		if ctx.Err() == nil {
			t.Errorf("the context of the call %d of %d goes on after its answer", i+1, len(calls))
		}
	}
}

// TestInterruptIsOurs checks that an interrupt of this handle is known to be its own, and that the server has the
// request.
func TestInterruptIsOurs(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		j := newJournal()
		rest := j.rest("")
		interrupted := make(chan struct{})
		s.rest = func(w http.ResponseWriter, r *http.Request) {
			rest(w, r)
			close(interrupted)
		}
		s.kernel = reading(func(k *jupytertest.Kernel, requests <-chan *jupyter.Message) {
			m := <-requests
			k.Begin(m)
			k.Stream(m, "stdout", "x")
			<-interrupted
			k.Say(m, jupyter.Shell, "execute_reply", map[string]string{"status": "error", "ename": "KeyboardInterrupt"})
			k.Status(m, "idle")
			answerNext(k, requests)
		})
		ks := s.kernels()
		k, err := ks.Open(t.Context(), "", "")
		must.Do(t, err)
		_, err = run(cancelling(t, time.Hour), ks, "x", printing(func() {
			if err := k.Interrupt(t.Context()); err != nil {
				t.Error(err)
			}
		}))
		must.Do(t, err)
		j.note("end")
		j.check(t, "0s interrupt", "0s end")
		_, err = run(cancelling(t, time.Hour), ks, "x", Handler{})
		must.Do(t, err)
	})
}

// TestLogOfSteps checks each attribute and the level of a step of ending code.
func TestLogOfSteps(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"level=INFO msg=step sandbox=i1234567890 context=c0ffee\n":                       nil,
		"level=WARN msg=\"step: failed\" sandbox=i1234567890 context=c0ffee error=EOF\n": io.EOF,
	} {
		var log strings.Builder
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		k := &Kernel{id: testContext, kernels: New(Options{SandboxID: testSandbox, Logger: logger})}
		if k.logStep(t.Context(), slog.LevelInfo, "step", err); log.String() != want {
			t.Errorf("got %s, want %s", log.String(), want)
		}
	}
}

// TestNewConnection checks the properties of a connection, and that one to a kernel of another language than Python sends
// no barrier.
func TestNewConnection(t *testing.T) {
	t.Parallel()
	for language, barriers := range map[string]int{"python": 1, "javascript": 0} {
		onClock(t, func(t *testing.T, s *server) {
			s.contexts = func(w http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(w).Encode([]Context{{ID: testContext, Language: language}})
			}
			got, connections := 0, 0
			s.kernel = reading(func(k *jupytertest.Kernel, requests <-chan *jupyter.Message) {
				if connections++; connections == 1 {
					<-time.After(time.Second)
					return
				}
				for m := range requests {
					if m.Header.MsgType == "kernel_info_request" {
						got++
					}
				}
			})
			ks := s.kernels()
			k, err := ks.Open(t.Context(), "", language)
			must.Do(t, err)
			if k.ID() != testContext || k.Language() != language || !k.made.Equal(time.Now()) {
				t.Errorf("got %s in %s, made at %v", k.ID(), k.Language(), k.made)
			}
			if k.unproven || k.heard.Load() || k.session == "" {
				t.Errorf("unproven %v, heard %v, in the session %q; want a new one", k.unproven, k.heard.Load(), k.session)
			}
			e := &execution{messages: make(chan *jupyter.Message, 1), left: make(chan struct{})}
			k.mu.Lock()
			k.current = e
			k.mu.Unlock()
			if m := <-e.messages; m != nil {
				t.Errorf("got %+v, want the end of the websocket", m)
			}
			must.Do(t, k.reconnect(t.Context(), e))
			synctest.Wait()
			if !e.resumed || e.paused || !k.made.Equal(time.Now()) {
				t.Errorf("got %+v after a connection that was made at %v", e, k.made)
			}
			if got != barriers || connections != 2 || (e.barrier != "") != (barriers > 0) {
				t.Errorf("%s: %d barriers over %d connections, the last made at %v, and %+v; want %d barriers", language, got, connections, k.made, e, barriers)
			}
			k.leave(e)
		})
	}
}

// TestUnreadQuestions checks that each question that comes while its execution ends is turned down, once.
func TestUnreadQuestions(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		answers := 0
		s.kernel = reading(func(_ *jupytertest.Kernel, requests <-chan *jupyter.Message) {
			for m := range requests {
				if m.Header.MsgType == "input_reply" && string(m.Content) == string(jupyter.Encode(jupyter.InputReply{Value: endOfInput})) {
					answers++
				}
			}
		})
		k, err := s.kernels().Open(t.Context(), "", "")
		must.Do(t, err)
		question := content("", jupyter.Stdin, "input_request", `{"prompt":"?"}`)
		check := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			if answers != want {
				t.Errorf("%s: %d questions were turned down, want %d", what, answers, want)
			}
			answers = 0
		}
		e, err := k.send(silently(""))
		must.Do(t, err)
		e.messages <- question
		k.leave(e)
		check("one that nobody has read", 1)
		for range 50 { // the order of both ends is random
			k.hand(e, question)
		}
		check("those of an execution that has ended", 50)
		e, err = k.send(silently(""))
		must.Do(t, err)
		e.asked = question
		k.leave(e)
		check("one that is open", 1)
	})
}

// TestCallsOfAnEndedConnection checks that a call that waits for its turn does not wait for a connection that has ended.
func TestCallsOfAnEndedConnection(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		s.kernel = reading(answerNext)
		k, err := s.kernels().Open(t.Context(), "", "")
		must.Do(t, err)
		must.Do(t, k.takeTurn(t.Context(), nil))
		waits := make(chan error)
		go func() { waits <- k.takeTurn(cancelling(t, time.Hour), nil) }()
		synctest.Wait()
		k.hangUp()
		must.Is(t, <-waits, errStale)
		if n := k.inTurn.Load(); n != 1 {
			t.Errorf("%d calls are in turn, want the first one", n)
		}
		k.release()
	})
}

// TestOpenAtTheGate checks that no connection is opened while a context is being ended, and that one that was being opened
// is closed. A connection that is open already is used meanwhile.
func TestOpenAtTheGate(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		websockets, ended := 0, 0
		s.kernel = reading(func(_ *jupytertest.Kernel, requests <-chan *jupyter.Message) {
			websockets++
			for range requests {
				continue
			}
			ended++
		})
		ks := s.kernels()
		var open func()
		s.dialled = func(context.Context) {
			if websockets > 0 {
				return
			}
			var err error
			if open, err = ks.shut(t.Context(), testContext); err != nil {
				t.Error(err)
			}
		}
		opened := make(chan *Kernel)
		go func() {
			k, err := ks.Open(cancelling(t, time.Hour), "", "")
			if err != nil {
				t.Error(err)
			}
			opened <- k
		}()
		synctest.Wait()
		if websockets != 1 || ended != 1 || len(ks.open) > 0 || len(ks.opening) > 0 {
			t.Errorf("%d websockets were opened, and %d ended; %d connections are open; want one, ended, and none", websockets, ended, len(ks.open))
		}
		gone, cancel := context.WithCancelCause(t.Context())
		mine := errors.New("mine")
		cancel(mine)
		_, err := ks.Open(gone, "", "")
		must.Is(t, err, mine)
		must.Is(t, ks.Remove(gone, testContext), mine)
		open()
		k := <-opened
		open, err = ks.shut(t.Context(), testContext)
		must.Do(t, err)
		if again, err := ks.Open(t.Context(), "", ""); err != nil || again != k {
			t.Errorf("got %v and %v, want the connection that is open", again, err)
		}
		open()
	})
}

// TestDisconnectWhileCodeRuns checks that only connections without running code are ended.
func TestDisconnectWhileCodeRuns(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		s.kernel = reading(answerNext)
		ks := s.kernels()
		printed, err := run(cancelling(t, time.Hour), ks, "x", printing(ks.Disconnect))
		k := ks.Opened("python")
		if err != nil || printed != "x" || k.isCut() {
			t.Errorf("got %q, %v, cut %v; want code that ran to its end", printed, err, k.isCut())
		}
		ks.Disconnect()
		synctest.Wait()
		if !k.isCut() {
			t.Error("the connection goes on, and nothing runs")
		}
	})
}
