package lifecycle

// State is where a sandbox is in its life.
type State int

// The states of a sandbox that can be found.
const (
	Running State = iota
	Pausing
	Paused
	Resuming
	Snapshotting
	Killing
	states // how many there are
)

func (s State) String() string {
	return [...]string{"running", "pausing", "paused", "resuming", "snapshotting", "killing"}[s]
}

// event is what a caller, or the clock, wants of a sandbox.
type event int

const (
	onGet event = iota
	onConnect
	onResume
	onPause
	onLifetime
	onNetwork
	onKill
	onSnapshot
	onFork
	onWake
	onExpiry
	events // how many there are
)

// reply is what the table has for an event in a state.
type reply int

const (
	act    reply = iota // what the event asks for is done
	wait                // until the transition has ended; then the table is asked again
	join                // until the transition has ended; its result is the event's
	refuse              // with a StateError
	absent              // as if there was no such sandbox
)

// table says what an event does in each state. The service has the same table, but that it
// refuses a snapshot or fork during another one: here that waits, for the other one may be one
// whose caller has gone, and that takes a moment to end.
var table = [events][states]reply{
	//           running pausing paused  resuming snapshotting killing
	onGet:      {act, act, act, act, act, absent},
	onConnect:  {act, wait, act, join, wait, refuse},
	onResume:   {refuse, wait, act, join, refuse, absent},
	onPause:    {act, join, refuse, wait, wait, absent},
	onLifetime: {act, refuse, absent, refuse, refuse, refuse},
	onNetwork:  {act, refuse, absent, refuse, refuse, absent},
	onKill:     {act, act, act, act, act, absent},
	onSnapshot: {act, wait, absent, wait, wait, absent},
	onFork:     {act, wait, refuse, wait, wait, absent},
	onWake:     {act, wait, act, join, wait, absent},
	onExpiry:   {act, absent, absent, absent, absent, absent},
}
