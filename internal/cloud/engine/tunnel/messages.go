package tunnel

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

// Version is the version of the protocol. It must be equal at both ends. Both ends are the same
// program, unless another program was named.
const Version = 2

// Hello is the first message of the server.
type Hello struct {
	Version int             `json:"version"`
	ID      string          `json:"id"`     // id of the sandbox
	Config  json.RawMessage `json:"config"` // the configuration, a [guest.Config]
	Egress  bool            `json:"egress"` // connections out of the sandbox are possible
	// Removed are files of the sandbox's image to delete from the sandbox.
	Removed []string `json:"removed,omitempty"`
	// Room is set if the sandbox has the files of a room. The configuration then expects these files.
	// If Room is nil, the sandbox has the files of an image.
	Room *Room `json:"room,omitempty"`
}

// Room describes a sandbox of a room.
type Room struct {
	Hostname string                `json:"hostname"`
	Ranged   bool                  `json:"ranged"`          // root and user have different ids
	Names    map[string]netip.Addr `json:"names,omitempty"` // names for /etc/hosts, with their addresses
}

// The kinds of a report.
const (
	kindReady  = "ready"
	kindLog    = "log"
	kindFailed = "failed"
)

// report is a message of the daemon inside the sandbox.
type report struct {
	Kind string          `json:"kind"`
	Line json.RawMessage `json:"line,omitempty"` // a line of the daemon's log
	Text string          `json:"text,omitempty"` // the reason of a failure
}

// order is the first message on each connection into the sandbox. The daemon answers with one byte,
// as defined in package wire.
type order struct {
	Port uint16 `json:"port"`
}

// request is the first message on each connection out of the sandbox. The server answers it with a
// message of type answer.
type request struct {
	Host string `json:"host"`
	Port uint16 `json:"port"`
	// Kills makes the message a request for the number of processes that were killed for lack of
	// memory, instead of a request for a connection.
	Kills bool `json:"kills,omitempty"`
}

type answer struct {
	Kills  int    `json:"kills,omitempty"`
	Error  string `json:"error,omitempty"` // reason for the failure; "" means that the connection was made
	Denied bool   `json:"denied,omitempty"`
}

// Maximum sizes of messages, in bytes.
const (
	maxHello   = guest.MaxConfig + 16<<20
	maxReport  = 16 << 10
	maxMessage = 4 << 10
	maxText    = 2 << 10 // bytes of the text of an error
)

func send(w io.Writer, message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...))
	return err
}

func receive(r io.Reader, limit uint32, message any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > limit {
		return fmt.Errorf("%w: a message of %d bytes", ErrProtocol, n)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, message); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}
