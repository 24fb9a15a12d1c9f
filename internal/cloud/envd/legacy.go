//go:build linux

package envd

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
)

// legacyClients sends only names, types and paths to the oldest Python SDK, which refuses
// unknown fields.
type legacyClients struct{}

const legacyUserAgent = "connect-python" // the exact value: newer SDKs append a version

func isLegacy(header http.Header) bool { return header.Get("User-Agent") == legacyUserAgent }

// WrapUnary removes all fields but names, types and paths from answers to the oldest Python SDK.
func (legacyClients) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		if err == nil && isLegacy(req.Header()) {
			stripReply(res.Any())
			markLegacy(res.Header())
		}
		return res, err
	}
}

// WrapStreamingClient returns next, because this package has no clients.
func (legacyClients) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler removes all fields but names, types and paths from every event for the
// oldest Python SDK.
func (legacyClients) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if isLegacy(conn.RequestHeader()) {
			markLegacy(conn.ResponseHeader())
			conn = strippingConn{conn}
		}
		return next(ctx, conn)
	}
}

type strippingConn struct{ connect.StreamingHandlerConn }

// Send changes msg itself, because no other code uses msg.
func (c strippingConn) Send(msg any) error {
	stripReply(msg)
	return c.StreamingHandlerConn.Send(msg)
}

func markLegacy(header http.Header) { header.Set("X-E2B-Legacy-SDK", "true") }

func stripReply(msg any) {
	switch msg := msg.(type) {
	case *filesystem.StatResponse:
		msg.Entry = stripEntry(msg.GetEntry())
	case *filesystem.MakeDirResponse:
		msg.Entry = stripEntry(msg.GetEntry())
	case *filesystem.MoveResponse:
		msg.Entry = stripEntry(msg.GetEntry())
	case *filesystem.ListDirResponse:
		for i, entry := range msg.GetEntries() {
			msg.Entries[i] = stripEntry(entry)
		}
	case *filesystem.GetWatcherEventsResponse:
		for _, event := range msg.GetEvents() {
			event.Entry = nil
		}
	case *filesystem.WatchDirResponse:
		if event := msg.GetFilesystem(); event != nil {
			event.Entry = nil
		}
	}
}

func stripEntry(entry *filesystem.EntryInfo) *filesystem.EntryInfo {
	return &filesystem.EntryInfo{Name: entry.GetName(), Type: entry.GetType(), Path: entry.GetPath()}
}
