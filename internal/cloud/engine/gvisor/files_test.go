//go:build linux

package gvisor_test

import "testing"

// TestManyFiles checks that a process can read more files one after the other than it may have
// open at once: gVisor has those of this machine open whose names it remembers.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	_, run := start(t, open(t), &echo{})
	const read = `python3 -c '
import os
os.mkdir("/tmp/many")
n = 0
for i in range(3000):
    with open(f"/tmp/many/{i}", "w") as f: f.write("x")
for i in range(3000):
    with open(f"/tmp/many/{i}") as f: n += len(f.read())
print(n)' 2>&1`
	if got := run(read); got != "3000" {
		t.Errorf("got %q, want that 3000 files are read", got)
	}
}
