// Package seeds has one mistake for each linter, with the linter's name.
package seeds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
	"time"
)

type State struct {
	ctx context.Context // want:containedctx
}

func (s *State) Context() context.Context { return s.ctx }

func Body(client *http.Client, req *http.Request) (int, error) {
	resp, err := client.Do(req) // want:bodyclose
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, nil
}

func Duration(d time.Duration) time.Duration {
	return d * time.Second // want:durationcheck
}

func Unchecked(dir string) {
	os.Remove(dir)             // want:errcheck
	fmt.Fprintln(os.Stderr, 1) // let go
}

func Deferred(f *bytes.Buffer, w io.WriteCloser) {
	defer w.Close()                                       // let go
	f.WriteTo(w)                                          // want:errcheck
	defer os.Chdir(w.(interface{ Name() string }).Name()) // want:errcheck
}

func Compared(err error) bool {
	return err == io.ErrUnexpectedEOF // want:errorlint
}

func Asserted(err error) bool {
	_, is := err.(*os.PathError) // want:errorlint
	return is
}

func Wrapped(err error) error {
	return fmt.Errorf("wrapped: %v", err) // want:errorlint
}

func Printed() {
	fmt.Println("printed") // want:forbidigo
}

func Ended() {
	os.Exit(1) // want:forbidigo
}

func Slept() {
	time.Sleep(1) // want:forbidigo,SA1004
}

func Shared() *http.Client { return http.DefaultClient } // want:forbidigo

func Formatted(w io.Writer) {
	fmt.Fprintf(w, "%d", "text") // want:printf,SA5009
}

func Copied(m sync.Mutex) { // want:copylocks
	m.Lock()
	m.Unlock() // want:SA2001
}

func Lost() context.Context {
	ctx, _ := context.WithCancel(context.Background()) // want:lostcancel
	return ctx
}

func Assigned(n int) int {
	m := n // want:ineffassign
	m = n + 1
	return m
}

func Made(n int) []int {
	s := make([]int, n)
	s = append(s, n) // want:makezero
	return s
}

// Spelled recieves a word. want:misspell
func Spelled() {}

func Swallowed(text []byte) error {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil // want:nilerr
	}
	return nil
}

func Uncancelled(url string) (*http.Request, error) {
	return http.NewRequest("GET", url, nil) // want:noctx
}

func Logged() {
	slog.Info("without context") // want:sloglint
}

func Mixed(ctx context.Context) {
	slog.InfoContext(ctx, "mixed", "a", 1, slog.Int("b", 2)) // want:sloglint
}

func Deprecated(s string) string {
	return strings.Title(s) // want:SA1019
}

func Pure(s string) {
	strings.ToUpper(s) // want:SA4017
}

func Compares(x int) bool {
	return x == x // want:SA4000
}

func Never() {
	var m map[string]int
	m["a"] = 1 // want:SA5000
}

func Simple(s []string) {
	for _, _ = range s { // want:S1005
	}
	sort.Sort(sort.StringSlice(s)) // want:S1032
}

func Styled() error {
	return errors.New("Error with a capital.") // want:ST1005
}

func YodaStyled(n int) bool {
	return 1 == n // want:ST1017
}

func Quick(a, b bool) bool {
	return !(a && !b) // want:QF1001
}

type embedded struct{ A int }

func Embedded(e struct{ embedded }) int {
	return e.embedded.A // want:QF1008
}

func unusedFunction() {} // want:unused

type hasUnusedField struct {
	used   int
	unused int // want:unused
}

func Fields(f *hasUnusedField) int { return f.used }

func onlyTestsUse() {}
