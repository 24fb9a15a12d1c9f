package local

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
)

// asker asks on the terminal whether a sandbox may reach a port of a host, one question at a time.
type asker struct {
	io *cmdutil.IOStreams
	// the state directory, which keeps the targets that are always allowed; "": there is none
	dir   string
	turn  chan struct{} // full while a question is on the screen
	typed chan string   // the lines that are typed; closed at the end of the input

	mu     sync.Mutex
	always []string // the hosts that are always allowed, if there is no state directory
}

func newAsker(streams *cmdutil.IOStreams, dir string) *asker {
	a := &asker{io: streams, dir: dir, turn: make(chan struct{}, 1), typed: make(chan string)}
	go func() { // a read of a terminal cannot be cancelled: it ends with the process
		defer close(a.typed)
		for lines := bufio.NewScanner(streams.In); lines.Scan(); {
			a.typed <- lines.Text()
		}
	}()
	return a
}

// ask reports whether a sandbox may reach a port of a host. If nobody answers before ctx ends, the answer is no.
func (a *asker) ask(ctx context.Context, id, host string, port int) bool {
	name, ok := asciiHost(host)
	if !ok {
		return false
	}
	name = net.JoinHostPort(name, strconv.Itoa(port))
	if a.isAllowed(name) {
		return true
	}
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return false
	}
	return a.isAllowed(name) || a.question(ctx, id, name) // it may have been allowed meanwhile
}

// readingTime is less than anybody needs to read a question and answer it.
const readingTime = time.Second / 2

// question shows a question and returns the answer. It ignores lines that were typed before
// readingTime has passed, because they were typed for something else: a second "y" after the question
// before, for example. If there were any, it then shows the question again.
func (a *asker) question(ctx context.Context, id, name string) bool {
	text := fmt.Sprintf("sandbox %s wants to reach %s: allow? [y]es / [N]o / [a]lways ", cmdutil.Printable(id), name)
	fmt.Fprint(a.io.Err, text)
	early := time.After(readingTime)
	ignored := false
	for {
		select {
		case line, ok := <-a.typed:
			if ok && early != nil {
				ignored = true
				continue
			}
			return a.isYes(line, name) // line is "" at the end of the input
		case <-early:
			if early = nil; ignored {
				fmt.Fprint(a.io.Err, "\nignored, because it was typed before the question could be read\n"+text)
			}
		case <-ctx.Done():
			fmt.Fprintln(a.io.Err, "\nno answer in 30 seconds: no")
			return false
		}
	}
}

// isYes reports whether an answer allows a port of a host. If the answer is "always", isYes keeps it.
func (a *asker) isYes(answer, name string) bool {
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true
	case "a", "always":
		if err := a.allow(name); err != nil {
			fmt.Fprintf(a.io.Err, "yes, but not always: %s\n", cmdutil.Message(err))
		}
		return true
	}
	return false
}

// isAllowed reports whether a port of a host is always allowed, so that no question is needed. It
// returns false if the list of allowed ports cannot be read.
func (a *asker) isAllowed(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	hosts := a.always
	if a.dir != "" {
		var err error
		if hosts, err = localcloud.AllowedHosts(a.dir); err != nil {
			fmt.Fprintln(a.io.Err, cmdutil.Message(err))
		}
	}
	return slices.Contains(hosts, name)
}

func (a *asker) allow(name string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dir == "" {
		a.always = append(a.always, name)
		return nil
	}
	return localcloud.AllowHost(a.dir, name)
}

// maxName is the length of the longest name of the DNS.
const maxName = 253

// asciiHost returns a host in the form for a question: an address, or a name in ASCII. It converts
// other letters to punycode, because a letter may look like a different one. It returns false for
// texts that no host can have, such as names with control characters.
func asciiHost(host string) (name string, ok bool) {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.String(), address.Zone() == ""
	}
	if !utf8.ValidString(host) { // different names would look the same
		return "", false
	}
	name, err := idna.Punycode.ToASCII(strings.ToLower(host))
	if err != nil || name == "" || len(name) > maxName {
		return "", false
	}
	other := func(r rune) bool {
		return r != '-' && r != '.' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	}
	return name, !strings.ContainsFunc(name, other)
}
