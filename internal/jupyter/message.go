package jupyter

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/boundjson"
)

// ProtocolVersion is the version of the messaging protocol in headers of this package.
const ProtocolVersion = "5.3"

// The four channels of a kernel.
const (
	Shell   = "shell"
	IOPub   = "iopub"
	Stdin   = "stdin"
	Control = "control"
)

// The states of a kernel.
const (
	StateStarting   = "starting"
	StateIdle       = "idle"
	StateBusy       = "busy"
	StateRestarting = "restarting"
	StateDead       = "dead"
)

// Header identifies a message. The Parent of every answer is the header of the
// request.
type Header struct {
	MsgID    string `json:"msg_id"`
	MsgType  string `json:"msg_type"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     Date   `json:"date,omitempty"`
	Version  string `json:"version"`
}

// Date is the time of a message, in ISO 8601. Some clients send no date.
type Date string

// UnmarshalJSON treats a value that is not a string as a missing date, and returns no error. This
// is necessary because Jupyter's own gateway client sends seconds.
func (d *Date) UnmarshalJSON(data []byte) error {
	*d = ""
	if data[0] != '"' {
		return nil
	}
	return json.Unmarshal(data, (*string)(d))
}

// Message is one Jupyter message on one channel.
type Message struct {
	Channel string
	Header  Header
	// Parent is the header of the request that this message answers. It is zero for a request, and
	// for a message that a server sends without a request.
	Parent   Header
	Metadata json.RawMessage
	Content  json.RawMessage
	// Buffers are the binary parts. In nearly all messages, Buffers is nil.
	Buffers [][]byte
}

// NewID returns a random identifier in the form of a UUID. Ids of messages, sessions and kernels
// have this form.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// SplitID splits an id of the form "prefix_17". Servers and many kernels
// number their messages like this, so that a missing message can be noticed.
func SplitID(id string) (prefix string, n int, ok bool) {
	at := strings.LastIndexByte(id, '_')
	if at < 0 || len(id) > 256 {
		return "", 0, false
	}
	n, err := strconv.Atoi(id[at+1:])
	return id[:at], n, err == nil && n >= 0 && int64(n) < 1<<53
}

// NewHeader returns a header with a fresh id and the current time.
func NewHeader(msgType, session, username string) Header {
	return Header{
		MsgID:    NewID(),
		MsgType:  msgType,
		Session:  session,
		Username: username,
		Date:     Date(time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")),
		Version:  ProtocolVersion,
	}
}

// ExecuteRequest is the content of execute_request.
type ExecuteRequest struct {
	Code            string            `json:"code"`
	Silent          bool              `json:"silent"`
	StoreHistory    bool              `json:"store_history"`
	UserExpressions map[string]string `json:"user_expressions"`
	AllowStdin      bool              `json:"allow_stdin"`
	StopOnError     bool              `json:"stop_on_error"`
}

// ExecuteReply is the content of execute_reply.
type ExecuteReply struct {
	// Status is "ok", "error" or "aborted".
	Status         string `json:"status"`
	ExecutionCount int    `json:"execution_count"`
	// UserExpressions contains one [ExpressionReply] for each requested expression.
	UserExpressions map[string]ExpressionReply `json:"user_expressions,omitempty"`
	ErrorContent
}

// ExpressionReply is the result of one user expression. If Status is "ok", the result is
// display data. Otherwise it is an error.
type ExpressionReply struct {
	Status   string                     `json:"status"`
	Data     map[string]json.RawMessage `json:"data,omitempty"`
	Metadata json.RawMessage            `json:"metadata,omitempty"`
	ErrorContent
}

// ErrorContent is the content of error, and part of a failed execute_reply.
type ErrorContent struct {
	Name      string   `json:"ename,omitempty"`
	Value     string   `json:"evalue,omitempty"`
	Traceback []string `json:"traceback,omitempty"`
}

// StatusContent is the content of status.
type StatusContent struct {
	// ExecutionState is "busy", "idle" or "starting"; a server also sends
	// "restarting" and "dead".
	ExecutionState string `json:"execution_state"`
	// Reason is the reason why a kernel died, or "" if it is unknown. Jupyter's protocol does not have
	// this field. The local cloud adds it.
	Reason string `json:"reason,omitempty"`
}

// ExecuteInput is the content of execute_input.
type ExecuteInput struct {
	Code           string `json:"code"`
	ExecutionCount int    `json:"execution_count"`
}

// StreamContent is the content of stream.
type StreamContent struct {
	// Name is "stdout" or "stderr".
	Name string `json:"name"`
	Text string `json:"text"`
}

// DisplayData is the content of display_data, update_display_data and
// execute_result.
type DisplayData struct {
	// Data maps a MIME type to its value: a JSON string for text and base64,
	// any JSON for JSON types.
	Data      map[string]json.RawMessage `json:"data"`
	Metadata  json.RawMessage            `json:"metadata"`
	Transient json.RawMessage            `json:"transient,omitempty"`
	// ExecutionCount is set only in execute_result.
	ExecutionCount *int `json:"execution_count,omitempty"`
}

// InputRequest is the content of input_request.
type InputRequest struct {
	Prompt   string `json:"prompt"`
	Password bool   `json:"password"`
}

// InputReply is the content of input_reply.
type InputReply struct {
	Value string `json:"value"`
}

// Encode calls json.Marshal. The type of content must be a type that can always be encoded. If
// json.Marshal fails, Encode panics, because the failure is a mistake in this program.
func Encode(content any) json.RawMessage {
	data, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return data
}

// MaxMembers bounds the number of members of a kernel's content, together with the members of these
// members. Examples of members are the lines of a traceback, or MIME types. Deeper values are not
// counted, because they are not decoded: they stay JSON.
const MaxMembers = 100_000

// Status returns the content of a status message. If the message is malformed, the result is zero.
func (m *Message) Status() StatusContent {
	var status StatusContent
	if json.Unmarshal(m.Content, &status) != nil {
		return StatusContent{}
	}
	return status
}

// Decode reads the content of a message into the variable that to points to.
func (m *Message) Decode(to any) error {
	if err := boundjson.Unmarshal(m.Content, to, MaxMembers, 2); err != nil {
		return m.Malformed(err)
	}
	return nil
}

// Malformed returns the error for a message that cannot be read.
func (m *Message) Malformed(err error) error {
	return fmt.Errorf("read the kernel's %.64s: %w", m.Header.MsgType, err)
}
