package agent_test

import (
	"os"
	"testing"

	"github.com/e2bctl/e2bctl/internal/exampletest"
)

func TestMain(m *testing.M) {
	os.Exit(exampletest.Ending{M: m}.Run()) //nolint:forbidigo // this is the main function of the tests
}
