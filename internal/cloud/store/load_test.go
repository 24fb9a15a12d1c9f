package store

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestManyRecords checks that a store finds many records again, in order.
func TestManyRecords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	const count = 1000
	for n := range count {
		put(t, s, Sandboxes, fmt.Sprintf("s%04d", (n*7)%count), "value", "")
	}
	must.Do(t, s.Close())
	started := time.Now()
	s = open(t, dir)
	all, err := s.Records(Sandboxes)
	if err != nil || len(all) != count {
		t.Fatalf("got %d records and error %v, want %d", len(all), err, count)
	}
	t.Logf("opened and read in %v", time.Since(started))
	for n, record := range all {
		if want := fmt.Sprintf("s%04d", n); record.ID != want {
			t.Fatalf("record %d: got %s, want %s", n, record.ID, want)
		}
	}
}

// TestConcurrency checks that concurrent callers always see complete records.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	var wait sync.WaitGroup
	for n := range 8 {
		wait.Go(func() {
			id := fmt.Sprint("s", n/2) // two of each
			for range 10 {
				dir, err := save(s, "text")
				if err == nil {
					_, err = s.Put(Sandboxes, id, []byte(id), dir)
				}
				s.Note(Running, id, nil)
				if err == nil {
					_, err = s.Records(Running)
				}
				if err == nil && n%2 == 0 {
					err = s.Delete(Sandboxes, id)
				}
				if err == nil {
					err = s.Delete(Running, id)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	all, err := s.Records(Sandboxes)
	must.Do(t, err)
	var files []string
	for _, record := range all {
		files = append(files, record.Dir)
		if _, err := os.Stat(filepath.Join(record.Dir, "text")); err != nil {
			t.Error(err)
		}
	}
	wantFiles(t, s, files...)
}

func BenchmarkPut(b *testing.B) {
	s, err := Open(b.Context(), b.TempDir())
	must.Do(b, err)
	defer s.Close()
	value := make([]byte, 1000)
	for b.Loop() {
		_, err := s.Put(Sandboxes, "a", value, "")
		must.Do(b, err)
	}
}

func BenchmarkNote(b *testing.B) {
	s, err := Open(b.Context(), b.TempDir())
	must.Do(b, err)
	defer s.Close()
	for n := 0; b.Loop(); n++ {
		s.Note(Running, fmt.Sprint(n), nil)
	}
}
