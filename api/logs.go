package api

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// LogLevel is the severity of an entry of a log. A service may use values other than the
// constants here.
type LogLevel string

// These are the levels, from the least serious one.
const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// LogEntry is one entry of a sandbox's log. The service writes the log, together with envd, the
// daemon inside the sandbox. The log does not contain the output of programs. Code in the sandbox
// can make envd write any entry.
type LogEntry struct {
	Time    time.Time `json:"timestamp"`
	Level   LogLevel  `json:"level"`
	Message string    `json:"message"`
	// Fields contains further details by name. The field "logger" names the program that wrote
	// the entry.
	Fields map[string]string `json:"fields"`
}

// LogParams selects entries of a log. The zero value selects all existing ones.
type LogParams struct {
	// From is the time of the first entry, to the millisecond; zero means the beginning of the
	// log.
	From time.Time
	// Tail limits the existing entries to the newest ones, at most 1000. Zero means all.
	Tail int
	// Level is the lowest level of the returned entries; empty means all levels.
	Level LogLevel
	// Search is a text that messages must contain, at most 256 characters.
	Search string
	// Follow waits for new entries until the sandbox has ended.
	Follow bool
}

const (
	// maxLogPage is the largest page of a log, and the service's default.
	maxLogPage = 1000
	// followEvery is the interval between requests for new entries of a followed log. aliveEvery is
	// the least interval between checks whether the sandbox of that log has ended.
	followEvery = 500 * time.Millisecond
	aliveEvery  = 2 * time.Second
)

// Logs iterates over the log of a sandbox, oldest entry first. It fetches each page when it is
// needed. A service may keep the log of a sandbox after its end.
func (s *SandboxService) Logs(ctx context.Context, id string, p *LogParams) iter.Seq2[LogEntry, error] {
	var params LogParams
	if p != nil {
		params = *p
	}
	return func(yield func(LogEntry, error) bool) {
		l := &logReader{service: s, id: id, params: params, from: params.From.Truncate(time.Millisecond)}
		for {
			entries, err := l.next(ctx)
			if err != nil {
				yield(LogEntry{}, err)
				return
			}
			if len(entries) == 0 {
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// logReader reads a log page by page.
type logReader struct {
	service *SandboxService
	id      string
	params  LogParams
	tailed  bool
	from    time.Time // the start of the next page, in whole milliseconds; zero: the beginning of the log
	came    int       // the number of entries of the millisecond at from that were returned already
	after   time.Time // the time of the last entry of the tail, from which page computes came; zero: came is known
	ended   bool      // no entries will follow: the sandbox has ended, or Follow is not set
	asked   time.Time // the time at which the sandbox was last checked for its end
}

// next returns the next entries. At the end of the log it returns no entries.
func (l *logReader) next(ctx context.Context) ([]LogEntry, error) {
	if l.params.Tail != 0 && !l.tailed {
		l.tailed = true
		if tail, err := l.tail(ctx); len(tail) > 0 || err != nil {
			return tail, err
		}
	}
	l.ended = l.ended || !l.params.Follow
	for {
		last := l.ended // entries written before the end may still arrive
		entries, err := l.page(ctx)
		if err != nil || len(entries) > 0 || last {
			return entries, err
		}
		if err := l.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// wait waits for new entries. It sets ended if the sandbox has ended. After the end it still waits
// once, because the service may write an entry about the end.
func (l *logReader) wait(ctx context.Context) error {
	if time.Since(l.asked) >= aliveEvery {
		l.asked = time.Now()
		_, err := l.service.Get(ctx, l.id)
		l.ended = errors.Is(err, ErrNotFound)
		if err != nil && !l.ended {
			return err
		}
	}
	timer := time.NewTimer(followEvery)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// page fetches the next page and returns its new entries.
func (l *logReader) page(ctx context.Context) ([]LogEntry, error) {
	if l.params.Tail != 0 && !l.params.Follow {
		return nil, nil
	}
	query := l.query("forward")
	if !l.from.IsZero() {
		query.Set("cursor", strconv.FormatInt(l.from.UnixMilli(), 10))
	}
	page, err := l.fetch(ctx, query)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	if page[0].Time.Before(l.from) {
		return nil, errors.New("api: the service's answer has entries of a log that are older than was asked for")
	}
	if !l.after.IsZero() {
		l.came = len(page)
		if i := slices.IndexFunc(page, func(e LogEntry) bool { return e.Time.After(l.after) }); i >= 0 {
			l.came = i
		}
	}
	fresh := page[min(l.came, len(page)):]
	if len(fresh) == 0 && len(page) >= maxLogPage { // this millisecond has more entries than a page
		l.from, l.came, l.after = l.from.Add(time.Millisecond), 0, time.Time{}
		return l.page(ctx)
	}
	l.advance(page)
	return fresh, nil
}

// advance makes the next page begin with the last millisecond of this one, because that
// millisecond may get more entries.
func (l *logReader) advance(page []LogEntry) {
	from := page[len(page)-1].Time.Truncate(time.Millisecond)
	l.from, l.came, l.after = from, 0, time.Time{}
	for _, e := range slices.Backward(page) {
		if e.Time.Before(from) {
			break
		}
		l.came++
	}
}

// tail returns the newest entries.
func (l *logReader) tail(ctx context.Context) ([]LogEntry, error) {
	if l.params.Tail < 0 || l.params.Tail > maxLogPage {
		return nil, fmt.Errorf("api: the last %d entries of a log: want 1 to %d: %w", l.params.Tail, maxLogPage, ErrInvalidArgument)
	}
	query := l.query("backward")
	query.Set("limit", strconv.Itoa(l.params.Tail))
	page, err := l.fetch(ctx, query)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	slices.Reverse(page)
	slices.SortStableFunc(page, func(a, b LogEntry) int { return a.Time.Compare(b.Time) })
	page = slices.DeleteFunc(page, func(e LogEntry) bool { return e.Time.Before(l.params.From) })
	if len(page) > 0 {
		l.after = page[len(page)-1].Time // older entries of the same millisecond may exist and were not asked for
		l.from = l.after.Truncate(time.Millisecond)
	}
	return page, nil
}

func (l *logReader) query(direction string) url.Values {
	query := url.Values{"direction": {direction}}
	if l.params.Level != "" {
		query.Set("level", string(l.params.Level))
	}
	if l.params.Search != "" {
		query.Set("search", l.params.Search)
	}
	return query
}

func (l *logReader) fetch(ctx context.Context, query url.Values) ([]LogEntry, error) {
	path, err := sandboxPath(l.id, "/logs")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Logs []*LogEntry `json:"logs"`
	}
	if _, err := l.service.client.do(ctx, call{method: http.MethodGet, path: "/v2" + path, query: query}, &answer); err != nil {
		return nil, err
	}
	return values("an entry of a log", answer.Logs)
}
