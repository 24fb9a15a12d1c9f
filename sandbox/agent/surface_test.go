package agent

import (
	"context"
	"reflect"
	"testing"
)

// withoutContext lists the exported methods of a run that take no context, and why.
var withoutContext = map[string]string{
	"Close":   "must work when every context has ended; bounded by itself",
	"ID":      "known since the beginning",
	"Metrics": "counted here",
}

func TestMethodsTakeAContext(t *testing.T) {
	t.Parallel()
	ctx := reflect.TypeFor[context.Context]()
	for m := range reflect.TypeFor[*Run]().Methods() {
		takes := m.Type.NumIn() > 1 && m.Type.In(1) == ctx
		if _, excepted := withoutContext[m.Name]; takes == excepted {
			t.Errorf("Run.%s: takes a context: %v, is an exception: %v", m.Name, takes, excepted)
		}
	}
}
