//go:build linux

package realservice_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/realservice"
	"github.com/e2bctl/e2bctl/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect returns a handle of the service's sandbox, for the tests that share it.
func connect(t *testing.T, s *realservice.Service, options ...sandbox.ConnectOption) *sandbox.Sandbox {
	t.Helper()
	all := append([]sandbox.ConnectOption{sandbox.WithAPIKey(realservice.APIKey), sandbox.WithAPIURL(s.URL), sandbox.WithSandboxURL(s.URL), sandbox.WithMaxRetries(0)}, options...)
	sb, err := sandbox.Connect(t.Context(), realservice.SandboxID, all...)
	must.Do(t, err)
	t.Cleanup(func() { sb.Close() })
	return sb
}

// The other tests rely on this: both ways to the kernel, with the state of the
// template, and envd.
func TestService(t *testing.T) {
	t.Parallel()
	s := realservice.Start(t)
	for _, transport := range []sandbox.CodeTransport{sandbox.CodeTransportWebsocket, sandbox.CodeTransportHTTP} {
		t.Run(string(transport), func(t *testing.T) {
			sb := connect(t, s, sandbox.WithCodeTransport(transport))
			e, err := sb.RunCode(t.Context(), "import pandas, sys\nprint(len(sys.argv) > 0)\npandas.DataFrame({'a': [1, 2]})", nil)
			must.Do(t, err)
			if e.Stdout != "True\n" || len(e.Results) != 1 || string(e.Results[0].Data["e2b/data"]) != `{"a":[1,2]}` {
				t.Errorf(`got %+v, want stdout %q, one result and e.Results[0].Data["e2b/data"] = %q`, e, "True\n", `{"a":[1,2]}`)
			}
			e, err = sb.RunCode(t.Context(), "[1, {'a': 'b'}]", nil)
			must.Do(t, err)
			if len(e.Results) != 1 || string(e.Results[0].Data["application/json"]) != `[1,{"a":"b"}]` {
				t.Errorf(`got %+v, want one result and e.Results[0].Data["application/json"] = %q`, e, `[1,{"a":"b"}]`)
			}
			_, err = sb.RunCode(t.Context(), "1/0", nil)
			if failed, ok := errors.AsType[*sandbox.ExecutionError](err); !ok || failed.Name != "ZeroDivisionError" {
				t.Errorf("got %v, want a *sandbox.ExecutionError and the exception %q", err, "ZeroDivisionError")
			}
			result, err := sb.Commands.Run(t.Context(), "echo $E2B_SANDBOX", nil)
			if err != nil || result.Stdout != "true\n" {
				t.Errorf("got %+v, %v, want stdout %q and no error", result, err, "true\n")
			}
			if _, err := sb.Contexts.Create(t.Context(), &sandbox.CodeContextParams{Language: "cobol"}); !errors.Is(err, sandbox.ErrUnknownLanguage) {
				t.Errorf("got %v, want sandbox.ErrUnknownLanguage", err)
			}
		})
	}
}
