package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type eventsOptions struct {
	Factory *cmdutil.Factory
	Open    cmdutil.Opener
	Types   eventTypes
	Params  sandbox.EventsParams
}

// NewCmdEvents returns e2bctl events.
func NewCmdEvents(f *cmdutil.Factory) *cobra.Command {
	opts := &eventsOptions{Factory: f}
	var isLocal bool
	cmd := &cobra.Command{
		Use:   "events [id]",
		Short: "List the events of sandboxes",
		Long: `List the events of all sandboxes of your key, or of one, which may have ended: the newest
event is the last. A sandbox was created, updated (its lifetime, network or resources), paused,
resumed, checkpointed (by a snapshot or fork) or killed, which is its end for any reason;
or a connection of it was refused. Only the local cloud has reasons and refused
connections. It keeps the newest 10,000 events since its start; E2B's service keeps
events for 7 days.

-f goes on with new events until it is stopped, or until the end of the sandbox if one is
named. With -o json it prints each event on a line of its own.`,
		Example: `  e2bctl events
  e2bctl events -f --type killed,refused
  e2bctl events "$ID" -o json
  e2bctl events --type killed --jq '.[] | select(.reason == "out_of_memory") | .sandboxID'`,
		Args: cmdutil.Wants("the ID of one sandbox at most", cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 0 {
				opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalRunning, nil)
			} else {
				opts.Params.SandboxID = args[0]
				opts.Open, err = f.SandboxOpener(cmd, isLocal, args[0])
			}
			if err != nil {
				return err
			}
			return eventsRun(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	f.AddFollowFlag(cmd, &opts.Params.Follow, "follow", "f", "go on with new events")
	flags.IntVarP(&opts.Params.Last, "tail", "n", 1000, "only the newest `N` events so far, at most 10000; 0 for all")
	flags.Var(&opts.Types, "type", "only events of this type, or of several with commas between")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func eventsRun(ctx context.Context, opts *eventsOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	if id := opts.Params.SandboxID; id != "" {
		if err := isKnown(ctx, conn.Client, id); err != nil {
			return err
		}
	}
	opts.Params.Types = opts.Types
	if opts.Params.Follow {
		return opts.follow(ctx, conn.Client)
	}
	var events []sandbox.Event
	for e, err := range conn.Events(ctx, &opts.Params) {
		if err != nil {
			return err
		}
		events = append(events, e)
	}
	return opts.list(events)
}

// isKnown returns an error if the service neither has the sandbox nor remembers an event of it. For an
// unknown sandbox the service sends an empty list of events.
func isKnown(ctx context.Context, client *sandbox.Client, id string) error {
	_, unknown := client.Info(ctx, id)
	if !errors.Is(unknown, sandbox.ErrNotFound) && !errors.Is(unknown, sandbox.ErrGone) {
		return unknown
	}
	for _, err := range client.Events(ctx, &sandbox.EventsParams{SandboxID: id, Last: 1}) {
		return err
	}
	return unknown
}

func (o *eventsOptions) list(events []sandbox.Event) error {
	views, rows, names := make([]eventView, len(events)), make([][]string, len(events)), make([]string, len(events))
	for i, e := range events {
		views[i], rows[i], names[i] = eventViewOf(e), eventRow(e), e.SandboxID
		o.warnMissed(e)
	}
	return o.Factory.WriteList(cmdutil.List{Kind: "events", Views: views, Names: names, Header: eventHeader(), Rows: rows})
}

// follow prints events as they come. If one sandbox is named, follow returns after its end.
func (o *eventsOptions) follow(ctx context.Context, client *sandbox.Client) error {
	params := o.Params
	isOne := params.SandboxID != ""
	if isOne && len(params.Types) > 0 && !slices.Contains(params.Types, sandbox.EventKilled) {
		params.Types = append(slices.Clone(params.Types), sandbox.EventKilled)
	}
	return o.print(client.Events(ctx, &params), isOne)
}

// print prints events. With untilKilled it returns after the end of a sandbox.
func (o *eventsOptions) print(events iter.Seq2[sandbox.Event, error], untilKilled bool) error {
	ios := o.Factory.IO
	rows := &cmdutil.Rows{Out: ios.Out, Width: ios.OutWidth, Header: eventHeader(), Widths: []int{20, 21, 8}}
	for e, err := range events {
		if err != nil {
			return err
		}
		o.warnMissed(e)
		if len(o.Types) == 0 || slices.Contains(o.Types, e.Type) {
			if err := o.write(rows, e); err != nil {
				return err
			}
		}
		if untilKilled && e.Type == sandbox.EventKilled {
			return nil
		}
	}
	return nil
}

func (o *eventsOptions) write(rows *cmdutil.Rows, e sandbox.Event) error {
	switch {
	case o.Factory.JSON():
		return cmdutil.WriteJSONLine(o.Factory.IO.Out, eventViewOf(e))
	case o.Factory.Quiet():
		_, err := fmt.Fprintln(o.Factory.IO.Out, cmdutil.Printable(e.SandboxID))
		return err
	}
	return rows.Write(eventRow(e))
}

// warnMissed prints how many events before e are missing.
func (o *eventsOptions) warnMissed(e sandbox.Event) {
	switch {
	case e.Missed > 0:
		fmt.Fprintf(o.Factory.IO.Err, "e2bctl: events: %d older events, of all sandboxes and types, are no longer kept.\n", e.Missed)
	case e.Missed < 0:
		fmt.Fprintln(o.Factory.IO.Err, "e2bctl: events: the service was started anew; events before that may be missing.")
	}
}

// eventView is an event as -o json shows it.
type eventView struct {
	ID          string    `json:"id"`
	Type        string    `json:"type"`
	Time        time.Time `json:"timestamp"`
	SandboxID   string    `json:"sandboxID"`
	TemplateID  string    `json:"templateID,omitempty"`
	BuildID     string    `json:"buildID,omitempty"`
	ExecutionID string    `json:"executionID,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	Message     string    `json:"message,omitempty"` // the reason in words
	EndAt       time.Time `json:"endAt,omitzero"`
	Host        string    `json:"host,omitempty"`
	Port        int       `json:"port,omitempty"`
	Rule        string    `json:"rule,omitempty"`
	Missed      int64     `json:"missed,omitempty"`
}

func eventViewOf(e sandbox.Event) eventView {
	v := eventView{
		ID: e.ID, Type: string(e.Type), Time: e.Time.UTC(), SandboxID: e.SandboxID, TemplateID: e.TemplateID, BuildID: e.BuildID, ExecutionID: e.ExecutionID,
		Reason: e.Reason, Message: e.Message, Host: e.Host, Port: e.Port, Rule: e.Rule, Missed: e.Missed,
	}
	if !e.EndAt.IsZero() {
		v.EndAt = e.EndAt.UTC()
	}
	return v
}

func eventHeader() []string { return []string{"TIME", "SANDBOX", "EVENT", "DETAILS"} }

func eventRow(e sandbox.Event) []string {
	return []string{e.Time.UTC().Format(time.RFC3339), e.SandboxID, shortType(e.Type), eventDetails(e)}
}

// shortType returns the last word of a type: "killed" of "sandbox.lifecycle.killed".
func shortType(t sandbox.EventType) string {
	return string(t[strings.LastIndexByte(string(t), '.')+1:])
}

func eventDetails(e sandbox.Event) string {
	switch e.Type {
	case sandbox.EventCreated:
		return "template " + e.TemplateID
	case sandbox.EventUpdated:
		if !e.EndAt.IsZero() {
			return "ends at " + e.EndAt.UTC().Format(time.RFC3339)
		}
		return cmp.Or(e.Message, "network") // only the local cloud sends a message
	case sandbox.EventRefused:
		if e.Port == 0 {
			return fmt.Sprintf("%s (%s)", e.Host, e.Rule)
		}
		return fmt.Sprintf("%s (%s)", net.JoinHostPort(e.Host, strconv.Itoa(e.Port)), e.Rule)
	}
	if e.Message == "" {
		return e.Reason
	}
	return e.Message
}

// eventTypes is a flag value that accepts types of events separated by commas.
type eventTypes []sandbox.EventType

// knownEventTypes returns the types of events that have a short name.
func knownEventTypes() []sandbox.EventType {
	return []sandbox.EventType{
		sandbox.EventCreated, sandbox.EventUpdated, sandbox.EventPaused, sandbox.EventResumed,
		sandbox.EventCheckpointed, sandbox.EventKilled, sandbox.EventRefused,
	}
}

func shortTypes(types []sandbox.EventType) []string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = shortType(t)
	}
	return names
}

func (t *eventTypes) Type() string   { return strings.Join(shortTypes(knownEventTypes()), "|") }
func (t *eventTypes) String() string { return strings.Join(shortTypes(*t), ",") }

// Set adds types. It accepts short names, and every name with a dot, because a service may have types
// that this program does not know.
func (t *eventTypes) Set(value string) error {
	known := shortTypes(knownEventTypes())
	for word := range strings.SplitSeq(value, ",") {
		at := slices.Index(known, strings.ToLower(word))
		switch {
		case at >= 0:
			*t = append(*t, knownEventTypes()[at])
		case strings.Contains(word, "."):
			*t = append(*t, sandbox.EventType(word))
		default:
			return errors.New("want " + strings.Join(known, ", ") + ", or several with commas between")
		}
	}
	return nil
}
