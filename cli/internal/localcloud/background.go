package localcloud

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Background returns the local cloud that is running or starting, with found set to true. If there
// is none, it starts `local up` in the background and returns when that cloud is ready. It returns
// a *ConflictError if the running cloud does not have the settings in want.
func (p Place) Background(ctx context.Context, want Settings) (record Record, found bool, err error) {
	record, err = p.await(ctx)
	found = err == nil
	if errors.Is(err, ErrNone) {
		if record, err = p.startBackground(ctx, want); err != nil && ctx.Err() == nil {
			// Another command may have started one first.
			if other, awaitErr := p.await(ctx); awaitErr == nil {
				record, found, err = other, true, nil
			}
		}
	}
	if found && !want.metBy(record) {
		return Record{}, false, conflictWith(record)
	}
	return record, found, err
}

// Settings are the settings for starting a local cloud in the background.
type Settings struct {
	Port      uint16        // the port; 0: any port
	Domain    string        // the domain without its port; "" means the default for a new cloud, and any domain for a running one
	State     string        // an absolute path; "" means the default for a new cloud, and any directory for a running one
	Ephemeral bool          // the cloud has no state directory
	Engine    string        // the engine; "" means the default for a new cloud, and any engine for a running one
	Idle      time.Duration // the cloud ends this long after the end of its last sandbox; 0 means never
	Flags     []string      // other flags of local up; they do not change a running cloud
}

// metBy reports whether a running local cloud has the settings s.
func (s Settings) metBy(by Record) bool {
	otherPort := s.Port != 0 && !strings.HasSuffix(by.URL, ":"+strconv.Itoa(int(s.Port)))
	otherState := s.State != "" && s.State != by.State || s.Ephemeral && by.State != ""
	otherEngine := s.Engine != "" && s.Engine != by.Engine
	if otherPort || otherState || otherEngine || len(s.Flags) > 0 {
		return false
	}
	domain, _, _ := net.SplitHostPort(by.Domain)
	return s.Domain == "" || s.Domain == domain
}

// await returns the record of the running local cloud. While a cloud starts or ends, await waits.
// After startWait it returns a *ConflictError. If there is no cloud, it returns ErrNone.
func (p Place) await(ctx context.Context) (Record, error) {
	patience := time.NewTimer(startWait)
	defer patience.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		record, err := p.Read()
		if !errors.Is(err, ErrNone) {
			return record, err
		}
		if pid, err := p.holder(); err != nil || pid == 0 {
			return Record{}, errors.Join(err, p.none())
		}
		select {
		case <-tick.C:
		case <-patience.C:
			return Record{}, &ConflictError{}
		case <-ctx.Done():
			return Record{}, context.Cause(ctx)
		}
	}
}

// startWait limits the time of a local cloud's start.
const startWait = 20 * time.Second

// startBackground starts `local up` in a new session and returns when that cloud is ready. If ctx
// ends before the cloud is ready, startBackground ends the process.
func (p Place) startBackground(ctx context.Context, want Settings) (Record, error) {
	program, err := os.Executable()
	if err != nil {
		return Record{}, err
	}
	args := []string{"local", "up", "--output", "json", "--port", strconv.Itoa(int(want.Port)), "--log", p.logFile()}
	if want.Domain != "" {
		args = append(args, "--domain", want.Domain)
	}
	if want.State != "" {
		args = append(args, "--state-dir", want.State)
	}
	if want.Ephemeral {
		args = append(args, "--ephemeral")
	}
	if want.Engine != "" {
		args = append(args, "--engine", want.Engine)
	}
	if want.Idle > 0 {
		args = append(args, "--idle", want.Idle.String())
	}
	args = append(args, want.Flags...)
	log, err := os.OpenFile(p.logFile(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return Record{}, err
	}
	defer log.Close()
	cmd := exec.Command(program, args...) //nolint:noctx // it outlives this command; startup is cancelled below
	cmd.Args[0] = os.Args[0]
	cmd.Dir = p.dir // it must not keep the current directory in use
	cmd.Stderr = log
	cmd.SysProcAttr = ownSession()
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return Record{}, err
	}
	if err := cmd.Start(); err != nil {
		return Record{}, fmt.Errorf("starting a local cloud in the background: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = end(cmd.Process) })
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(ready, 1<<16)).ReadBytes('\n')
	if err != nil {
		_ = cmd.Wait()
		if ctx.Err() != nil {
			return Record{}, context.Cause(ctx)
		}
		return Record{}, fmt.Errorf("starting a local cloud in the background: %s", failureIn(log))
	}
	ready.Close()
	var said struct {
		Record
		failure
	}
	if err := json.Unmarshal(line, &said); err != nil {
		_ = end(cmd.Process)
		_ = cmd.Wait()
		return Record{}, fmt.Errorf("reading the address and key of the local cloud: %w", err)
	}
	if said.Error.Message != "" {
		_ = cmd.Wait()
		return Record{}, fmt.Errorf("starting a local cloud in the background: %s", said.Error.Message)
	}
	return said.Record, cmd.Process.Release()
}

// failure is an error as commands write it with -o json.
type failure struct {
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
}

// TellFailure writes the reason for a failed start to the process that started this local cloud in
// the background. That process receives it in place of the record. The log is not sufficient for
// this, because its disk may be full.
func TellFailure(to io.Writer, message string) {
	var said failure
	said.Error.Message = message
	_ = json.NewEncoder(to).Encode(said) // if this fails, the log has it
}

// failureIn returns the reason why a `local up` failed: the error object in the last line of
// its log.
func failureIn(log *os.File) string {
	const tail = 4096
	info, err := log.Stat()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, min(tail, info.Size()))
	if _, err := log.ReadAt(text, info.Size()-int64(len(text))); err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	var last failure
	if err := json.Unmarshal(lines[len(lines)-1], &last); err == nil && last.Error.Message != "" {
		return strings.TrimPrefix(last.Error.Message, "local up: ")
	}
	return "it ended without saying why; see " + log.Name()
}
