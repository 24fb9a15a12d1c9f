package kubernetes

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestRemains checks which objects are those of servers that died.
func TestRemains(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	k := keysFor(t, longSecret, "agents")
	at := func(uid types.UID, change func(*object)) *object {
		o := withRecord(t, k, "one", anyRecord())
		if o.UID = uid; change != nil {
			change(o)
		}
		return o
	}
	creating := func(second int) func(*object) {
		return func(o *object) {
			o.Annotations = nil
			shutdown := metav1.NewTime(begin.Add(time.Duration(second) * time.Second))
			o.Spec.ShutdownTime = &shutdown
		}
	}
	deleting := metav1.NewTime(begin)
	r := remains{}
	var got []types.UID
	for second := range 60 {
		for _, o := range r.over([]*object{
			at("lives", nil),
			at("is being created", creating(600+second/10*10)),
			at("is abandoned", creating(600)),
			at("is abandoned after a while", creating(600+min(second, 20))),
			at("is not removed", func(o *object) { o.Annotations[annotationEnded] = closedHere }),
			at("is being removed", func(o *object) { o.Annotations[annotationEnded], o.DeletionTimestamp = closedHere, &deleting }),
			at("has no time of shutdown", func(o *object) { o.Annotations, o.Spec.ShutdownTime = nil, nil }),
		}, begin.Add(time.Duration(second)*time.Second), 30*time.Second) {
			if second == 31 || second == 51 {
				got = append(got, o.UID)
			}
		}
	}
	want := []types.UID{"is abandoned", "is not removed", "is abandoned", "is abandoned after a while", "is not removed"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNoRightToLeases checks that a server without the right to Leases says this once, and goes on.
func TestNoRightToLeases(t *testing.T) {
	t.Parallel()
	api := &scripted{answers: []any{http.StatusForbidden}}
	server := httptest.NewServer(api)
	defer server.Close()
	e := engineOn(t, server.URL, longSecret)
	var said bytes.Buffer
	e.options.Logger = slog.New(slog.NewTextHandler(&said, nil))
	e.elect()
	if len(api.got) != 1 || bytes.Count(said.Bytes(), []byte("may not use Leases")) != 1 || e.elected.Load() {
		t.Errorf("it asked %d times, and said %s", len(api.got), said.Bytes())
	}
}
