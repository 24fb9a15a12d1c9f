package lifecycle

// State is the state of a sandbox. Only a sandbox that can be found has a state.
type State int

// The states.
const (
	Running State = iota
	Pausing
	Paused
	Resuming
	Snapshotting
	Killing
	states // the number of states
)

func (s State) String() string {
	return [...]string{"running", "pausing", "paused", "resuming", "snapshotting", "killing"}[s]
}

// event is a wish of a caller, or of the clock, for a sandbox.
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
	events // the number of events
)

// reply is the table's answer to an event in a state.
type reply int

const (
	act    reply = iota // act on the event
	wait                // wait until the transition has ended, and ask the table again
	join                // wait until the transition has ended, and take over its result
	refuse              // return a StateError
	absent              // answer as if the sandbox did not exist
)

// table has the reply to each event in each state. It is the service's, with one difference:
// the service refuses a snapshot or fork during another one. Here it waits, because the caller
// of the other one may have gone, and that one takes a moment to end.
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
