package kernelconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// keeping is a server's treatment of messages that it could not deliver.
type keeping string

const (
	keepsAll        keeping = "keeps what is not acknowledged"               // some of these messages were received
	keepsUnattached keeping = "keeps what is said while nobody is connected" // Jupyter's own
	keepsNothing    keeping = "keeps nothing"
)

// cut is the place at which the first connections of a session are cut.
type cut struct {
	fromClient bool // counts the messages from the client, not those to it
	at         int  // the number of the message
	after      bool // the message is handed over first
	times      int  // how many connections are cut
}

// cuttingServer is a kernel behind a server whose connections are cut.
type cuttingServer struct {
	t        *testing.T
	keeping  keeping
	v1       bool
	numbered bool
	asks     bool // the code asks for input in its middle
	cut      cut

	mu          sync.Mutex
	question    *jupyter.Message   // the open question
	asking      *jupyter.Message   // the request whose code asks
	waiting     []*jupyter.Message // messages to answer when the code is done
	answers     []string
	said        []*jupyter.Message
	kept        []*jupyter.Message // its messages that were sent while no client was connected
	handed      int                // how many of them were sent
	runs        int
	connections int
	at          *cutSocket
}

// cutSocket is one connection; cuttingServer.mu guards it.
type cutSocket struct {
	conn     *websocket.Conn
	sent     int
	cutting  bool
	received int
}

func (s *cuttingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{}
	if s.v1 {
		upgrader.Subprotocols = []string{jupyter.SubprotocolV1}
	}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer conn.Close()
	s.mu.Lock()
	s.connections++
	if s.at != nil {
		s.at.conn.Close()
	}
	so := &cutSocket{conn: conn, cutting: s.connections <= s.cut.times}
	s.at = so
	switch s.keeping {
	case keepsAll:
		for _, m := range s.said[max(s.handed-2, 0):] {
			s.hand(m)
		}
	case keepsUnattached:
		kept := s.kept
		s.kept = nil
		for _, m := range kept {
			s.hand(m)
		}
	case keepsNothing:
	}
	s.mu.Unlock()
	for {
		_, frame, err := conn.ReadMessage()
		if err != nil {
			break
		}
		m, err := s.unmarshal(frame)
		if err != nil {
			s.t.Error(err)
			break
		}
		s.take(so, m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == so {
		s.at = nil
	}
}

func (s *cuttingServer) unmarshal(frame []byte) (*jupyter.Message, error) {
	if s.v1 {
		return jupyter.UnmarshalV1(frame)
	}
	return jupyter.Unmarshal(frame, false)
}

// take answers a message of the client.
func (s *cuttingServer) take(so *cutSocket, m *jupyter.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	here := so.cutting && s.cut.fromClient && so.received == s.cut.at
	so.received++
	if here && !s.cut.after {
		so.conn.Close()
		return
	}
	if here {
		s.at = nil // its messages reach no client
		so.conn.Close()
	}
	switch m.Header.MsgType {
	case "execute_request":
		s.runs++
		s.begin(m)
	case "input_reply":
		s.answer(m)
	case "kernel_info_request":
		if s.question != nil {
			s.waiting = append(s.waiting, m)
			return
		}
		s.introduce(m)
	}
}

func (s *cuttingServer) introduce(m *jupyter.Message) {
	s.say(m, jupyter.IOPub, "status", jupyter.StatusContent{ExecutionState: "busy"})
	s.say(m, jupyter.Shell, "kernel_info_reply", map[string]any{"status": "ok"})
	s.say(m, jupyter.IOPub, "status", jupyter.StatusContent{ExecutionState: "idle"})
}

// cutMessages is the number of messages of an execution, without a question.
const cutMessages = 8

func (s *cuttingServer) begin(m *jupyter.Message) {
	s.say(m, jupyter.IOPub, "status", jupyter.StatusContent{ExecutionState: "busy"})
	s.say(m, jupyter.IOPub, "execute_input", jupyter.ExecuteInput{ExecutionCount: 1})
	s.say(m, jupyter.IOPub, "stream", jupyter.StreamContent{Name: "stdout", Text: "<0>"})
	if s.asks {
		s.asking = m
		s.question = s.say(m, jupyter.Stdin, "input_request", jupyter.InputRequest{Prompt: "?"})
		return
	}
	s.end(m)
}

// answer takes an answer as kernels do: without an open question it is ignored.
func (s *cuttingServer) answer(m *jupyter.Message) {
	if s.question == nil || m.Parent.MsgID != s.question.Header.MsgID {
		return
	}
	var reply jupyter.InputReply
	_ = json.Unmarshal(m.Content, &reply)
	s.answers = append(s.answers, reply.Value)
	s.question = nil
	s.end(s.asking)
	s.goOn()
}

// goOn answers the messages that waited for the code.
func (s *cuttingServer) goOn() {
	for _, m := range s.waiting {
		s.introduce(m)
	}
	s.waiting = nil
}

// interrupt ends code that waits for an answer.
func (s *cuttingServer) interrupt(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/interrupt") && s.question != nil {
		s.question = nil
		s.say(s.asking, jupyter.Shell, "execute_reply", map[string]any{"status": "error"})
		s.say(s.asking, jupyter.IOPub, "status", jupyter.StatusContent{ExecutionState: "idle"})
		s.goOn()
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *cuttingServer) end(m *jupyter.Message) {
	for i := 1; i < 3; i++ {
		s.say(m, jupyter.IOPub, "stream", jupyter.StreamContent{Name: "stdout", Text: fmt.Sprintf("<%d>", i)})
	}
	s.say(m, jupyter.IOPub, "execute_result", map[string]any{"data": map[string]any{"text/plain": "42"}, "execution_count": 1})
	s.say(m, jupyter.Shell, "execute_reply", map[string]any{"status": "ok", "execution_count": 1})
	s.say(m, jupyter.IOPub, "status", jupyter.StatusContent{ExecutionState: "idle"})
}

func (s *cuttingServer) say(parent *jupyter.Message, channel, kind string, content any) *jupyter.Message {
	data, err := json.Marshal(content)
	if err != nil {
		s.t.Error(err)
	}
	m := &jupyter.Message{Channel: channel, Header: jupyter.NewHeader(kind, "server", "k"), Content: data, Parent: parent.Header}
	if s.numbered {
		m.Header.MsgID = fmt.Sprintf("kernel_1_%d", len(s.said))
	}
	s.said = append(s.said, m)
	s.hand(m)
	return m
}

// hand sends a message to the connected client, if possible.
func (s *cuttingServer) hand(m *jupyter.Message) {
	so := s.at
	if so == nil {
		s.kept = append(s.kept, m)
		return
	}
	here := so.cutting && !s.cut.fromClient && so.sent == s.cut.at
	so.sent++
	if !here || s.cut.after {
		kind, frame := websocket.BinaryMessage, []byte(nil)
		var err error
		if s.v1 {
			frame, err = jupyter.MarshalV1(m)
		} else {
			kind = websocket.TextMessage
			frame, _, err = jupyter.Marshal(m)
		}
		if err != nil {
			s.t.Error(err)
		}
		_ = so.conn.WriteMessage(kind, frame) // the client may be gone
		s.handed = max(s.handed, slices.Index(s.said, m)+1)
	}
	if here {
		s.at = nil
		so.conn.Close()
	}
}

// Wherever a connection is cut, an execution is complete and reported once, or
// an error says that it may be incomplete. The code runs at most once.
func TestCutAtEveryMessage(t *testing.T) {
	t.Parallel()
	for _, keeping := range []keeping{keepsAll, keepsUnattached, keepsNothing} {
		for _, v1 := range []bool{true, false} {
			for _, numbered := range []bool{true, false} {
				for _, c := range cuts() {
					name := fmt.Sprintf("%s/v1 %v/numbered %v/%+v", keeping, v1, numbered, c)
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						testCut(t, &cuttingServer{keeping: keeping, v1: v1, numbered: numbered, cut: c})
					})
				}
			}
		}
	}
}

func cuts() (all []cut) {
	for _, times := range []int{1, 2} {
		for _, after := range []bool{false, true} {
			for at := range cutMessages + 1 { // the last one never arrives
				all = append(all, cut{at: at, after: after, times: times})
			}
			for at := range 2 {
				all = append(all, cut{fromClient: true, at: at, after: after, times: times})
			}
		}
	}
	return all
}

// This is the same while the code asks for input: an answer that was lost in a
// cut is sent again, and taken once.
func TestCutAroundAQuestion(t *testing.T) {
	t.Parallel()
	const answer = 1 // the second message of the client
	for _, numbered := range []bool{true, false} {
		for _, times := range []int{1, 2} {
			for _, after := range []bool{false, true} {
				for _, keeping := range []keeping{keepsAll, keepsUnattached, keepsNothing} {
					c := cut{fromClient: true, at: answer, after: after, times: times}
					t.Run(fmt.Sprintf("%s/numbered %v/%+v", keeping, numbered, c), func(t *testing.T) {
						t.Parallel()
						testCut(t, &cuttingServer{keeping: keeping, v1: true, numbered: numbered, asks: true, cut: c})
					})
				}
				for at := range cutMessages + 1 { // only keepsAll keeps the messages that were sent to a connection that is cut
					c := cut{at: at, after: after, times: times}
					t.Run(fmt.Sprintf("numbered %v/%+v", numbered, c), func(t *testing.T) {
						t.Parallel()
						testCut(t, &cuttingServer{keeping: keepsAll, numbered: numbered, asks: true, cut: c})
					})
				}
			}
		}
	}
}

func testCut(t *testing.T, cutting *cuttingServer) {
	t.Helper()
	onClock(t, func(t *testing.T, s *server) {
		cutting.t = t
		s.socket, s.rest = cutting.ServeHTTP, cutting.interrupt
		ks := s.kernels()
		told := 0
		h := Handler{Message: func(m *jupyter.Message) error {
			if m.Header.MsgType == "execute_result" {
				told++
			}
			return nil
		}}
		if cutting.asks {
			h.Input = func(context.Context, string, bool) (string, error) { return "yes", nil }
		}
		printed, err := run(t.Context(), ks, "code", h)
		cutting.mu.Lock()
		runs, connections, answers := cutting.runs, cutting.connections, cutting.answers
		cutting.mu.Unlock()
		if cutting.asks && (len(answers) > 1 || err == nil && !slices.Equal(answers, []string{"yes"})) {
			t.Errorf("answered %q", answers)
		}
		const all = "<0><1><2>"
		switch {
		case runs > 1:
			t.Errorf("ran %d times", runs)
		case err == nil && (printed != all || told != 1):
			t.Errorf("printed %q, %d results", printed, told)
		case err != nil && !errors.Is(err, ErrLost):
			t.Error(err)
		}
		if told > 1 || strings.Count(printed, "<0>")+strings.Count(printed, "<1>")+strings.Count(printed, "<2>") > 3 {
			t.Errorf("told twice: %q", printed)
		}
		lostRequest := cutting.cut.fromClient && cutting.cut.at == 0 && !cutting.cut.after
		if cutting.keeping == keepsAll && cutting.numbered && !lostRequest && err != nil {
			t.Errorf("nothing was lost: %v", err)
		}
		if lostRequest && (err == nil || runs != 0) {
			t.Errorf("the request was lost: ran %d times, %v", runs, err)
		}
		inside := cutting.cut.at < cutMessages-1 || cutting.cut.at == cutMessages-1 && !cutting.cut.after
		if inside && !cutting.cut.fromClient && connections < 2 {
			t.Error("was not cut")
		}
		// Messages that were lost in a cut are not mixed into later ones.
		for range 1 + cutting.cut.times {
			before := told
			if printed, err := run(t.Context(), ks, "code", h); err == nil && printed == all && told == before+1 {
				return
			} else if !errors.Is(err, ErrLost) {
				t.Errorf("the next: %q, %d results, %v", printed, told-before, err)
			}
		}
		t.Error("the next never works")
	})
}

// The end of the connection also ends the wait for a paused sandbox.
func TestCloseWhileResuming(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		settling := make(chan struct{})
		s.settle = func(ctx context.Context) bool {
			close(settling)
			<-ctx.Done()
			return false
		}
		s.kernel = func(k *jupytertest.Kernel) { k.Begin(k.Next()) } // and then the websocket is cut
		ks := s.kernels()
		go func() {
			<-settling
			ks.Close()
		}()
		_, err := run(t.Context(), ks, "x", Handler{})
		must.Is(t, err, ErrLost)
	})
}

// A websocket that was made for a connection which has ended meanwhile is closed.
func TestResumedTooLate(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		ended := make(chan struct{}, 2)
		s.kernel = func(k *jupytertest.Kernel) {
			if k.Next() == nil {
				ended <- struct{}{}
			}
		}
		ks := s.kernels()
		k, err := ks.Open(t.Context(), "", "")
		must.Do(t, err)
		late, err := s.Dial(t.Context(), "/api/kernels/x/channels")
		must.Do(t, err)
		ks.Close()
		must.Is(t, k.continueOver(late, new(execution), false), ErrLost)
		for range 2 {
			patience.Receive(t, "the end of a websocket", ended)
		}
	})
}
