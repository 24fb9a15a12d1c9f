package doctor

import (
	"errors"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox/local"
)

// The status of an engine says if it is available, and its detail has its
// promises.
func TestCheckEngine(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		promises []local.Promise
		err      error
		want     check
	}{
		"all":    {[]local.Promise{{Feature: "a limit"}, {Feature: "a log"}}, nil, check{Status: "ok", Detail: "Promised: a limit; a log."}},
		"some":   {[]local.Promise{{Feature: "a limit"}, {Feature: "ids differ", Missing: "no root"}}, nil, check{Status: "ok", Detail: "Promised: a limit. Not promised: ids differ.", Hint: "not promised: ids differ (no root)"}},
		"absent": {nil, errors.New("local: no daemon"), check{Status: "absent", Detail: "no daemon"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.want.Name = "room engine"
			if got := checkEngine("room", local.Report{Promises: tt.promises}, tt.err); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
