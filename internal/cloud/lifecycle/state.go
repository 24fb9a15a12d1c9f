package lifecycle

// State is the state of a sandbox. A sandbox has a state only while calls can find it.
type State int

// States of a sandbox.
const (
	Running State = iota
	Pausing
	Paused
	Resuming
	Snapshotting
	Resizing
	Killing
	states // number of states
)

func (s State) String() string {
	return [...]string{"running", "pausing", "paused", "resuming", "snapshotting", "resizing", "killing"}[s]
}

// event is an operation on a sandbox that a caller or the clock requests.
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
	onResize
	onWake
	onExpiry
	events // number of events
)

// reply is an entry of table.
type reply int

const (
	act    reply = iota // execute the event
	wait                // wait until the transition has ended, and look up the table again
	join                // wait until the transition has ended, and return its result
	refuse              // return a StateError
	absent              // return the error for a sandbox that does not exist
)

// table defines the reply to each event in each state. It is the same as on the service, which cannot
// resize a sandbox, with one difference. The service refuses a snapshot or fork while another snapshot or fork is in progress.
// The local cloud lets the second one wait. The reason is that the caller of the first one may have
// gone, and the transition of the first one then takes a moment to end.
var table = [events][states]reply{
	//           running pausing paused  resuming snapshotting resizing killing
	onGet:      {act, act, act, act, act, act, absent},
	onConnect:  {act, wait, act, join, wait, wait, refuse},
	onResume:   {refuse, wait, act, join, refuse, refuse, absent},
	onPause:    {act, join, refuse, wait, wait, wait, absent},
	onLifetime: {act, refuse, absent, refuse, refuse, wait, refuse},
	onNetwork:  {act, refuse, absent, refuse, refuse, wait, absent},
	onKill:     {act, act, act, act, act, act, absent},
	onSnapshot: {act, wait, absent, wait, wait, wait, absent},
	onFork:     {act, wait, refuse, wait, wait, wait, absent},
	onResize:   {act, wait, absent, wait, wait, wait, absent},
	onWake:     {act, wait, act, join, wait, wait, absent},
	onExpiry:   {act, absent, absent, absent, absent, absent, absent},
}
