package seeds

import (
	"fmt"
	"os"
	"time"
)

func Silenced() {
	os.Remove("nothing")    //nolint:errcheck // nothing is there
	fmt.Println()           //nolint:errcheck,forbidigo // want:nolintlint
	time.Sleep(time.Second) //nolint:forbidigo // it is short
	os.Remove("nothing")    //nolint:forbidigo // want:errcheck,nolintlint
	os.Remove("nothing")    //nolint:gosec // no linter of ours, want:errcheck
	/* want:errcheck,nolintlint */ os.Remove("nothing") //nolint:errcheck
	/* want:errcheck,nolintlint */ os.Remove("nothing") // nolint:errcheck // not like this
	/* want:errcheck,nolintlint */ os.Remove("nothing") //nolint // which?
}

//nolint:errcheck // all of the function
func SilencedBelow() {
	os.Remove("nothing")
	if time.Now().IsZero() {
		os.Remove("nothing")
	}
}

func SilencedNot() {
	//nolint:errcheck // the next statement
	os.Remove("nothing")
	os.Remove("nothing") // want:errcheck
	//nolint:forbidigo // want:nolintlint
	os.Remove("nothing") // want:errcheck
}
