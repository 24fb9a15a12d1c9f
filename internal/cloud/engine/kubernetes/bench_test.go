//go:build linux

package kubernetes

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubetest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// launches counts the calls of launch, so that no sandbox has the name of one whose pod is still ending.
var launches atomic.Int64

// launch makes small sandboxes at the same time, which have run a command when it returns.
func launch(b *testing.B, e *Engine, prefix string, n int) (all []engine.Sandbox) {
	b.Helper()
	prefix = fmt.Sprintf("%s-%d", prefix, launches.Add(1))
	all = make([]engine.Sandbox, n)
	var starting sync.WaitGroup
	for i := range n {
		starting.Go(func() {
			id := fmt.Sprintf("%s-%d", prefix, i)
			s, err := e.NewSandbox(patience.Context(b), engine.SandboxOptions{ID: id, Limits: small, Config: guest.Config{SandboxID: id}})
			if err == nil {
				all[i] = s
				_, err = output(patience.Context(b), s, ":")
			}
			if err == nil && e.lasts() {
				err = s.(engine.Lasting).Keep(patience.Context(b), recordFor(time.Hour))
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	starting.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return all
}

func closeAll(b *testing.B, all []engine.Sandbox) {
	b.Helper()
	var closing sync.WaitGroup
	for _, s := range all {
		closing.Go(func() {
			if err := s.Close(); err != nil {
				b.Error(err)
			}
		})
	}
	closing.Wait()
}

// BenchmarkCluster measures what users of a cluster wait for.
func BenchmarkCluster(b *testing.B) {
	c := kubetest.Start(b)
	c.AddImage(b, kubetest.Program)
	c.AddImage(b, kubetest.Python)
	const many = 20
	cold := open(b, c, func(o *Options) { o.Secret = secret })
	b.Run("cold", func(b *testing.B) {
		for range b.N {
			closing := launch(b, cold, "cold", 1)
			b.StopTimer()
			closeAll(b, closing)
			b.StartTimer()
		}
	})
	b.Run("cold, baked", func(b *testing.B) {
		c.AddImage(b, kubetest.Baked)
		baked := open(b, c, func(o *Options) {
			o.Secret, o.Image, o.ProgramImage, o.TrustNetworkPolicy = secret, kubetest.Baked, kubetest.Baked, true
		})
		b.ResetTimer()
		for range b.N {
			closing := launch(b, baked, "baked", 1)
			b.StopTimer()
			closeAll(b, closing)
			b.StartTimer()
		}
	})
	b.Run("20 at once, cold", func(b *testing.B) {
		for range b.N {
			closing := launch(b, cold, "crowd", many)
			b.StopTimer()
			closeAll(b, closing)
			b.StartTimer()
		}
	})
	b.Run("adoption", func(b *testing.B) {
		for range b.N {
			b.StopTimer()
			e := open(b, c, func(o *Options) { o.Secret = secret })
			launch(b, e, "adopt", 1)
			must.Do(b, e.Close())
			b.StartTimer()
			e = open(b, c, func(o *Options) { o.Secret = secret })
			found := make(chan engine.Found, 100)
			must.Do(b, e.Adopt(b.Context(), func(f engine.Found) { found <- f }))
			f := patience.Receive(b, "the sandbox is found", found)
			s, err := f.Open(engine.SandboxOptions{ID: f.ID, Config: guest.Config{SandboxID: f.ID}})
			must.Do(b, err)
			run(b, s, ":")
			b.StopTimer()
			must.Do(b, s.Close())
			must.Do(b, e.Close())
			b.StartTimer()
		}
	})
	b.Run("100 MiB out", func(b *testing.B) {
		const size = 100 << 20
		all := launch(b, cold, "bulk", 1)
		b.SetBytes(size)
		b.ResetTimer()
		for range b.N {
			if got := len(run(b, all[0], fmt.Sprintf("head -c %d /dev/zero", size))); got != size {
				b.Fatalf("a command wrote %d bytes, want %d", got, size)
			}
		}
		b.StopTimer()
		closeAll(b, all)
	})
	warm := pooled(b, c, many, func(o *Options) { o.Limits = small })
	for _, n := range []int{1, many} {
		b.Run(fmt.Sprintf("%d at once, from a pool", n), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				awaitPool(b, warm, many)
				b.StartTimer()
				closing := launch(b, warm, "pool", n)
				b.StopTimer()
				closeAll(b, closing)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkScale measures what sandboxes cost the API server: SCALE.md is calculated from it.
func BenchmarkScale(b *testing.B) {
	if b.N > 1 {
		return // go test measures again with the rounds that -benchtime asks for, and these counts need one
	}
	c := kubetest.Start(b)
	c.AddImage(b, kubetest.Program)
	c.AddImage(b, kubetest.Python)
	const many, idle = 30, 60 * time.Second
	e := open(b, c, func(o *Options) { o.Secret = secret })
	closeAll(b, launch(b, e, "first", 1))
	at := func() map[string]float64 { return requests(b, e) }
	since := func(what string, before map[string]float64, per float64) {
		after := at()
		for _, key := range slices.Sorted(maps.Keys(after)) {
			if n := (after[key] - before[key]) / per; n > 0.004 {
				b.Logf("%s: %.2f %s", what, n, key)
			}
		}
	}
	before := at()
	time.Sleep(idle) //nolint:forbidigo // requests of an idle server are counted
	since("per minute without sandboxes", before, idle.Minutes())
	before = at()
	all := launch(b, e, "many", many)
	since("per create", before, many)
	for _, kind := range []schema.GroupVersionResource{sandboxes, pods, events} {
		list, err := e.kind(kind).List(b.Context(), metav1.ListOptions{})
		must.Do(b, err)
		text, err := json.Marshal(list.Items)
		must.Do(b, err)
		b.Logf("%d %s, of %d bytes of JSON each", len(list.Items), kind.Resource, len(text)/max(len(list.Items), 1))
	}
	before = at()
	time.Sleep(idle) //nolint:forbidigo // requests of an idle server are counted
	since("per minute with 30 sandboxes", before, idle.Minutes())
	before = at()
	closeAll(b, all)
	since("per end", before, many)
	b.ReportMetric(0, "ns/op")
}

// requests returns the numbers of requests that the API server has served, by verb and resource, and the
// numbers and bytes of events that it has sent to watches.
func requests(b *testing.B, e *Engine) map[string]float64 {
	b.Helper()
	client, err := rest.HTTPClientFor(e.config)
	must.Do(b, err)
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, e.config.Host+"/metrics", nil)
	must.Do(b, err)
	response, err := client.Do(request)
	must.Do(b, err)
	defer response.Body.Close()
	all := map[string]float64{}
	lines := bufio.NewScanner(io.LimitReader(response.Body, 64<<20))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), "{")
		labels, value, found := strings.Cut(rest, "} ")
		if !found || name != "apiserver_request_total" && name != "apiserver_watch_events_total" && name != "apiserver_watch_events_sizes_sum" {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		must.Do(b, err)
		key := strings.TrimPrefix(name, "apiserver_")
		for label := range strings.SplitSeq(labels, `",`) {
			name, value, _ := strings.Cut(label, `="`)
			if name == "verb" || name == "resource" || name == "subresource" || name == "kind" {
				key += " " + strings.Trim(value, `"`)
			}
		}
		if resource := strings.Fields(key)[1]; slices.Contains([]string{"sandboxes", "pods", "events", "leases"}, resource) {
			all[key] += number
		}
	}
	must.Do(b, lines.Err())
	return all
}
