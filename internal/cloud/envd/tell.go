//go:build linux

package envd

import (
	"context"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// tell logs the start and the end of a process, and returns when the process has ended. It runs in
// its own goroutine. No code waits for that goroutine.
func (ps *processes) tell(l *launch, r *running) {
	began := time.Now()
	ctx := context.Background()
	ps.logger.InfoContext(ctx, "process started", "pid", r.pid, "command", commandLine(l.config.GetCmd(), l.config.GetArgs()), "cwd", l.dir, "user", l.user.Name)
	<-r.ended
	if n := r.killed(); n > 0 {
		ps.logger.WarnContext(ctx, "memory ran out while a process ran, and processes of the sandbox were killed", "pid", r.pid, "killed", n)
	}
	ps.logger.InfoContext(ctx, "process ended", "pid", r.pid, "status", r.end.GetStatus(), "took", time.Since(began))
}

// Bounds of a process's command line in the log, in bytes. maxCommand bounds the text that is read,
// and maxCommandKept bounds the text that is logged.
const (
	maxCommand     = 64 << 10
	maxCommandKept = 512
)

// secrets contains functions that replace the parts of a command line that look like secrets.
var secrets = []func(string) string{
	replacing(`(://)[^/\s@'"]*(@)`), // user and password in a URL
	replacing(`(?i)(\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}()`),
	replacing(`(?i)((?:passw(?:or)?d|secret|token|api[-_]?key|credentials?|authorization)[\w-]*["']?\s*[=:]\s*["']?)[^\s"'&;,\\]+()`),
	replacing(`(?i)(--?(?:passw(?:or)?d|secret|token|api-?key)[\w-]*\s+["']?)[^\s"'&;,]+()`),
}

func replacing(expression string) func(string) string {
	compiled := lazyregexp.New(expression)
	return func(s string) string { return compiled().ReplaceAllString(s, "$1***$2") }
}

// commandLine returns a command for the log, without the parts that look like secrets. It cannot
// recognise every secret, so a secret belongs in the environment or in stdin.
func commandLine(name string, args []string) string {
	var line strings.Builder
	line.WriteString(name)
	for _, arg := range args {
		if line.Len() > maxCommand {
			break
		}
		line.WriteString(" " + arg[:min(len(arg), maxCommand)])
	}
	text := line.String()
	for _, hide := range secrets {
		text = hide(text)
	}
	return clip.Text(text, maxCommandKept)
}
