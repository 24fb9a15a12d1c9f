//go:build linux

package wire

import (
	"encoding/json"
	"errors"
)

// ErrProtocol means that the other end sent a message that the protocol does not allow.
var ErrProtocol = errors.New("envd broke the protocol")

// Maximum sizes of one message in bytes, and the maximum number of descriptors that may come with
// it.
const (
	MaxMessage     = 64 << 10
	MaxEnvdMessage = 16 << 10 // largest message that the server reads from an envd
	MaxFiles       = 128
	MaxErrorText   = 2 << 10
)

// Kind is the subject of a message. The subject also determines the sender and the receiver.
type Kind string

const (
	KindHello   Kind = "hello"   // child: it has started
	KindRole    Kind = "role"    // server: take this role
	KindFailed  Kind = "failed"  // child: it failed, with the error
	KindReady   Kind = "ready"   // child: it is done, and ready for the next step
	KindGo      Kind = "go"      // server to the first stage: the limits are in force
	KindSpawn   Kind = "spawn"   // server to room: start a sandbox, with envd's socket
	KindSpawned Kind = "spawned" // room to server: the sandbox was started, with a pidfd
	KindEnding  Kind = "ending"  // room to server, in place: envd has ended, and its remaining processes are being ended
	// KindExited is sent from room to server: the sandbox has ended. The message has an error if
	// processes are left.
	KindExited  Kind = "exited"
	KindName    Kind = "name"    // server to room: the hostname
	KindNamed   Kind = "named"   // room to server: the answer to name
	KindMeminfo Kind = "meminfo" // server to room: keep the /proc/meminfo of a sandbox up to date
	KindResize  Kind = "resize"  // server to room: change the disk of a sandbox, and the resources that its programs count
	KindResized Kind = "resized" // room to server: the answer to resize
	// KindSockets is sent from server to room as a request to make sockets. The room answers with a
	// message of the same kind and sockets in the sandbox's network namespace.
	KindSockets  Kind = "sockets"
	KindKill     Kind = "kill"     // server to room: end a sandbox
	KindDial     Kind = "dial"     // server to envd: connect the stream that comes with the message to a port
	KindEgress   Kind = "egress"   // envd to server: connect to a host
	KindEgressed Kind = "egressed" // server to envd: the answer to egress, with the stream
	KindRefused  Kind = "refused"  // server to envd: the request was refused; replaces an answer
	KindTerminal Kind = "terminal" // envd to server: open a terminal; the server answers with both of its ends
	KindLog      Kind = "log"      // envd to server: a line of its log in Spec
	// KindKernel is sent from envd to server as a request to fork a kernel. The server answers with a
	// message of the same kind and the kernel's socket. The server also sends KindKernel to the
	// zygote, with that socket and other files.
	KindKernel Kind = "kernel"
	// KindStop and the following kinds are numbered requests to the process that runs gVisor. This
	// process answers each of them except the last one with a message of the same kind.
	KindStop       Kind = "stop"        // stop the processes until KindGoOn
	KindSaveMemory Kind = "save memory" // save the memory of stopped processes, with the directory to write to
	KindGoOn       Kind = "go on"
	KindGiveUp     Kind = "give up" // cancel the request with this message's ID
)

// Role is the task of a re-executed process.
type Role string

const (
	RoleKeeper  Role = "keeper"
	RoleGuard   Role = "guard"
	RoleRoom    Role = "room"
	RoleInit    Role = "init"
	RoleEnvd    Role = "envd"
	RoleProbe   Role = "probe" // an envd that reports that it is ready, and then ends
	RoleZygote  Role = "zygote"
	RoleSaver   Role = "saver"
	RoleLayers  Role = "layers"
	RoleMounter Role = "mounter" // gets an InitSpec, and the files of the sandbox, or only an authority
	RoleEnterer Role = "enterer" // gets an EnterSpec
)

// Message is the only type of message on a control socket.
type Message struct {
	Kind     Kind            `json:"kind"`
	Protocol int             `json:"protocol,omitempty"`
	Role     Role            `json:"role,omitempty"`
	Spec     json.RawMessage `json:"spec,omitempty"`
	ID       uint64          `json:"id,omitempty"`
	Slot     uint32          `json:"slot,omitempty"`
	UID      uint32          `json:"uid,omitempty"` // id to switch to; 0 means none
	Host     string          `json:"host,omitempty"`
	Port     uint16          `json:"port,omitempty"`
	Status   int             `json:"status,omitempty"` // wait status
	Denied   bool            `json:"denied,omitempty"`
	Notes    []string        `json:"notes,omitempty"`
	Hidden   []string        `json:"hidden,omitempty"` // trees that the sandbox's id cannot enter
	Trees    []string        `json:"trees,omitempty"`  // trees of saved files or layers
	Error    string          `json:"error,omitempty"`
	Files    []FileName      `json:"files,omitempty"` // names of the descriptors, in their order
}

// Encode returns the JSON of v. v is one of the specs of this package, or another value that
// consists of strings and numbers.
func Encode(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // the value is one of our own structs of strings and numbers
	}
	return data
}
