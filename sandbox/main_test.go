package sandbox_test

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/exampletest"
)

func TestMain(m *testing.M) {
	// Settings of pip on the machine that runs the tests must not affect them.
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PIP_") {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Setenv("PIP_CONFIG_FILE", os.DevNull)
	goleak.VerifyTestMain(exampletest.Ending{M: m})
}
