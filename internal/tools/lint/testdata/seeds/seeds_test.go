package seeds

import (
	"net/http"
	"os"
	"testing"
	"time"
)

func TestSeeds(t *testing.T) {
	dir, err := os.MkdirTemp("", "seeds") // want:usetesting
	if err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(dir)
	os.Setenv("SEEDS", dir) // want:usetesting
	onlyTestsUse()
	_, _ = http.NewRequest("GET", dir, nil)
	time.Sleep(time.Second) // want:forbidigo
	go func() {             // want:SA2002
		t.Fatal("not here") // want:testinggoroutine
	}()
}

func unusedHelper() {} // want:unused
