// Package faults has tests that fail in each way that the runner knows.
package faults

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	// dir remembers what earlier runs did.
	dir   = flag.String("dir", "", "")
	sleep = flag.Bool("sleep", false, "only be there")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *sleep {
		<-time.After(time.Hour)
		return
	}
	goleak.VerifyTestMain(m)
}

// times returns how often it was called with a name before.
func times(t *testing.T, name string) int {
	file, err := os.OpenFile(filepath.Join(*dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	file.WriteString("x")
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Size()) - 1
}

func TestPasses(t *testing.T) { t.Log("all is well") }

func TestFlaky(t *testing.T) {
	t.Run("below", func(t *testing.T) {
		if times(t, "flaky") == 0 {
			t.Error("the first time is the worst")
		}
	})
}

// TestKey is flaky, too.
func TestKey(t *testing.T) {
	if times(t, "key") == 0 {
		t.Error("a key shows")
	}
}

func TestThenRaces(t *testing.T) {
	if times(t, "then") == 0 {
		t.Fatal("the first time there is no race")
	}
	t.Error("testing.go: " + "WARNING: DATA" + " RACE")
}

func TestFails(t *testing.T) { t.Error("it always does") }

func TestFailsOne(t *testing.T)   { t.Error("one") }
func TestFailsTwo(t *testing.T)   { t.Error("two") }
func TestFailsThree(t *testing.T) { t.Error("three") }
func TestFailsFour(t *testing.T)  { t.Error("four") }
func TestFailsFive(t *testing.T)  { t.Error("five") }

func TestFailsSometimes(t *testing.T) {
	if times(t, "sometimes")%2 == 1 {
		t.Error("every second time")
	}
}

func TestPanics(*testing.T) { panic("no way out") }

func TestPanicsElsewhere(*testing.T) {
	go func() { panic("no way out") }()
	select {}
}

func TestLeaks(*testing.T) { go func() { select {} }() }

func TestFindsLeak(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	go func() { <-stop }()
	goleak.VerifyNone(t, goleak.IgnoreCurrent())
	go func() { <-stop }()
	goleak.VerifyNone(t, goleak.IgnoreTopFunction("none"))
}

func TestExitsOne(*testing.T)   { os.Exit(1) }
func TestExitsThree(*testing.T) { os.Exit(3) }
func TestExitsZero(*testing.T)  { os.Exit(0) }

func TestFailsAndExits(t *testing.T) {
	t.Run("fails", func(t *testing.T) { t.Error("first") })
	os.Exit(1)
}

// TestHangs leaves a process that only the end of its group ends.
func TestHangs(t *testing.T) { startHelper(t, nil).Wait() }

// TestHangsWithHelper leaves a process in a group of its own.
func TestHangsWithHelper(t *testing.T) {
	startHelper(t, &syscall.SysProcAttr{Setsid: true})
	select {}
}

func TestLeavesHelper(t *testing.T) { startHelper(t, &syscall.SysProcAttr{Setsid: true}) }

// startHelper starts a process that sleeps, and writes its number to a file.
func startHelper(t *testing.T, how *syscall.SysProcAttr) *exec.Cmd {
	command := exec.Command(os.Args[0], "-sleep")
	command.SysProcAttr = how
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(*dir, "pid")
	if err := os.WriteFile(path+".new", fmt.Append(nil, command.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return command
}

func TestTakesLong(*testing.T) { <-time.After(time.Hour) }

func TestRaces(*testing.T) {
	n := 0
	done := make(chan struct{})
	go func() {
		n++
		close(done)
	}()
	n++
	<-done
}

func TestSkips(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() { t.Log("time=now msg=ends") })
			t.Skip("the moon is not full:\nwait for it")
		})
	}
}

// TestTakesTime waits for a parallel one below it, which takes a twentieth of a second.
func TestTakesTime(t *testing.T) {
	t.Run("below", func(t *testing.T) {
		t.Parallel()
		<-time.After(50 * time.Millisecond)
	})
}

func TestSkipsSilently(t *testing.T) { t.SkipNow() }
