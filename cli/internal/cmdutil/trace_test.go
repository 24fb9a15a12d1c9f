//go:build unix

package cmdutil

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestTrace checks that a command is reported to the collector of the environment, and that a wrong address is told.
func TestTrace(t *testing.T) {
	var reports []string
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		reports = append(reports, r.URL.Path+" "+string(body))
	}))
	defer collector.Close()
	for _, name := range []string{"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "TRACEPARENT"} {
		t.Setenv(name, "")
	}
	plain := len(NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil).ClientOptions())
	for _, tt := range []struct {
		address string
		quiet   bool
		traced  bool
		told    string
	}{
		{"", false, false, ""}, {collector.URL, false, true, ""}, {"ftp://x", false, false, "e2bctl: the command is not traced: "}, {"ftp://x", true, false, ""},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", tt.address)
		var errs bytes.Buffer
		f := NewFactory(NewIOStreams(nil, io.Discard, &errs), nil)
		f.flags.quiet, reports = tt.quiet, nil
		ctx := f.Trace(t.Context(), "the command")
		if traced := trace.SpanContextFromContext(ctx).IsValid(); traced != tt.traced || len(f.ClientOptions()) > plain != tt.traced {
			t.Errorf("%q: the command is traced: %v, with %d options, want %v", tt.address, traced, len(f.ClientOptions()), tt.traced)
		}
		if !strings.HasPrefix(errs.String(), tt.told) || (tt.told == "") != (errs.Len() == 0) {
			t.Errorf("%q, quiet %v: got %q, want %q", tt.address, tt.quiet, &errs, tt.told)
		}
		f.EndTrace(3)
		if sent := strings.Join(reports, ""); (sent != "") != tt.traced || tt.traced && (!strings.HasPrefix(sent, "/v1/traces ") || !strings.Contains(sent, "the command")) {
			t.Errorf("%q: reported %q", tt.address, sent)
		}
	}
}

// TestCompletionLogs checks that an error of a completion is logged with -v, and does not end the choices.
func TestCompletionLogs(t *testing.T) {
	s := newRecorder(t, "i1")
	t.Setenv("E2B_API_KEY", "e2b_00")
	for _, verbose := range []string{"-v", "--verbose=false"} {
		var log bytes.Buffer
		f := NewFactory(NewIOStreams(nil, io.Discard, &log), nil)
		cmd := parsed(t, func(cmd *cobra.Command) { f.AddFlags(cmd) }, "--api-url="+s.url, verbose)
		choices := f.Complete(t.Context(), cmd, func(context.Context, *Connection) ([]string, error) { return []string{"a"}, errFull })
		told := strings.Contains(log.String(), "no choices") && strings.Contains(log.String(), errFull.Error())
		if len(choices) != 1 || told != (verbose == "-v") {
			t.Errorf("%s: got the choices %q and the log %q", verbose, choices, &log)
		}
	}
}

// TestKubernetesOption checks that the flags start a cloud whose sandboxes are pods.
func TestKubernetesOption(t *testing.T) {
	t.Parallel()
	var k KubernetesFlags
	parsed(t, k.Add, "--namespace=of-pods")
	if got := settingsOf(k.LocalOption()); got == settingsOf() {
		t.Errorf("got the settings %s, want other ones", got)
	}
	must.Do(t, k.Check(&cobra.Command{}, "kubernetes"))
}
