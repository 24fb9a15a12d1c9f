//go:build linux

package kernel

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// listen returns the port of a listener, and a function that returns the line from the next
// connection to it.
func listen(t *testing.T) (port int, hear func() string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	must.Do(t, l.(*net.TCPListener).SetDeadline(patience.Deadline()))
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).Port, func() string {
		t.Helper()
		conn, err := l.Accept()
		must.Do(t, err)
		defer conn.Close()
		said, err := bufio.NewReader(conn).ReadString('\n')
		must.Do(t, err)
		return strings.TrimSpace(said)
	}
}

// tell is a cell that defines tell(port, text). It sends text to the listener that listen made,
// which has this port.
const tell = `import asyncio
async def tell(port, text):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.encode() + b"\n")
    await writer.drain()
    writer.close()`

// everyPython runs a test with each engine, and with the kernel that the service has.
func everyPython(t *testing.T, test func(t *testing.T, s *session)) {
	t.Helper()
	engines(t, func(t *testing.T, python string) { test(t, attach(t, newKernel(t, python))) })
	t.Run("ipykernel", func(t *testing.T) {
		t.Parallel()
		k, _ := newJupyter(t, "python3")
		test(t, attach(t, k))
	})
}

// The loop runs in cells and between them, as it does in the service's kernels.
func TestTasksBetweenCells(t *testing.T) {
	t.Parallel()
	everyPython(t, func(t *testing.T, s *session) {
		port, hear := listen(t)
		s.run(tell)
		for _, test := range []struct{ name, code string }{
			{"create_task", "task = asyncio.create_task(tell(%d, 'heard'))"},
			{"ensure_future", "task = asyncio.ensure_future(tell(%d, 'heard'))"},
			{"loop.create_task", "task = asyncio.get_event_loop().create_task(tell(%d, 'heard'))"},
			{"call_later", "handle = asyncio.get_running_loop().call_later(0.01, lambda: asyncio.create_task(tell(%d, 'heard')))"},
			{"a task of a cell that awaits", "task = asyncio.create_task(tell(%d, 'heard')); await asyncio.sleep(0)"},
			{"a task of a cell that fails", "task = asyncio.create_task(tell(%d, 'heard')); 1/0"},
			{"another thread", "import threading\nloop = asyncio.get_running_loop()\nthreading.Thread(target=lambda: asyncio.run_coroutine_threadsafe(tell(%d, 'heard'), loop)).start()"},
			{"a thread that is late", "import time\nfuture = loop.run_in_executor(None, time.sleep, 0.05)\nfuture.add_done_callback(lambda f: asyncio.ensure_future(tell(%d, 'heard')))"},
			{"a process", "async def ends():\n    process = await asyncio.create_subprocess_exec('true')\n    await process.wait()\n    await tell(%d, 'heard')\ntask = asyncio.create_task(ends())"},
			{"a descriptor", "import socket\nours, theirs = socket.socketpair()\ndef readable():\n    loop.remove_reader(ours)\n    asyncio.create_task(tell(%d, 'heard'))\nloop.add_reader(ours, readable)\nthreading.Timer(0.05, theirs.send, [b'1']).start()"},
		} {
			s.run(fmt.Sprintf(test.code, port))
			if got := hear(); got != "heard" {
				t.Errorf("%s: %q was said between cells, want %q", test.name, got, "heard")
			}
		}
		for _, test := range []struct{ code, text, failure string }{
			{code: "asyncio.get_running_loop() is asyncio.get_event_loop()", text: "True"},
			{code: "asyncio.get_running_loop().is_running()", text: "True"},
			{code: "first = asyncio.get_running_loop()"},
			{code: "first is asyncio.get_running_loop()", text: "True"},
			{code: "await asyncio.sleep(0); first is asyncio.get_running_loop()", text: "True"},
			{code: "task = asyncio.create_task(asyncio.sleep(0.01, 7))"},
			{code: "await task", text: "7"},
			{code: "async def fails(): raise KeyError('why')\ntask = asyncio.create_task(fails())"},
			{code: "await task", failure: "KeyError"},
			{code: "lock, gate = asyncio.Lock(), asyncio.Event()\nasync def waits():\n    async with lock: await gate.wait()\n    return 8\ntask = asyncio.create_task(waits())"},
			{code: "gate.set()"},
			{code: "await task", text: "8"},
			{code: "import threading; found = []\ndef ask():\n    try: found.append(asyncio.get_running_loop())\n    except RuntimeError: found.append(None)\nthread = threading.Thread(target=ask); thread.start(); thread.join(); found", text: "[None]"},
		} {
			o := s.run(test.code)
			if o.text() != test.text || o.reply.Name != test.failure {
				t.Errorf("%q: got %+v, want text %q and the exception %q", test.code, o, test.text, test.failure)
			}
		}
	})
}

// A server that a cell starts answers while no cell runs.
func TestServerBetweenCells(t *testing.T) {
	t.Parallel()
	everyPython(t, func(t *testing.T, s *session) {
		o := s.run("import asyncio\nasync def answer(reader, writer):\n    writer.write(b'hello ' + await reader.readline())\n    writer.close()\nserver = await asyncio.start_server(answer, '127.0.0.1', 0)\nserver.sockets[0].getsockname()[1]")
		for range 3 {
			conn, err := net.Dial("tcp", "127.0.0.1:"+o.text())
			must.Do(t, err)
			fmt.Fprintln(conn, "you")
			if got, err := io.ReadAll(conn); string(got) != "hello you\n" {
				t.Errorf("got %q, %v, want %q and no error", got, err, "hello you\n")
			}
			conn.Close()
			if o := s.run("6 * 7"); o.text() != "42" {
				t.Errorf("while the server runs: %+v, want text %q", o, "42")
			}
		}
	})
}

// Cells can run a loop, though one counts as running.
func TestCellsThatRunALoop(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		s.run("import asyncio\nasync def f(n):\n    async with asyncio.Lock(): await asyncio.sleep(0)\n    return n\nleft = asyncio.create_task(asyncio.sleep(3600))")
		runner := s.run("asyncio.Runner").reply.Status == "ok"
		for _, test := range []struct{ code, text, failure string }{
			{code: "asyncio.run(f(1))", text: "1"},
			{code: "import asyncio.runners; asyncio.runners.run(f(2))", text: "2"},
			{code: "asyncio.get_running_loop().is_running()", text: "True"},
			{code: "with asyncio.Runner() as r: a = r.run(f(3)), r.run(f(4))\na", text: "(3, 4)"},
			{code: "asyncio.get_event_loop().run_until_complete(f(5))", text: "5"},
			{code: "asyncio.get_running_loop().run_until_complete(f(6))", text: "6"},
			{code: "loop = asyncio.new_event_loop(); asyncio.set_event_loop(loop); v = loop.run_until_complete(f(7)); loop.close(); v", text: "7"},
			{code: "loop = asyncio.new_event_loop(); loop.call_soon(loop.stop); loop.run_forever(); 8", text: "8"},
			{code: "asyncio.get_running_loop() is asyncio.get_event_loop()", text: "True"},
			{code: "async def fails(): raise KeyError\nasyncio.run(fails())", failure: "KeyError"},
			{code: "async def nested(): return asyncio.run(f(0))\nasyncio.run(nested())", failure: "RuntimeError"},
			{code: "asyncio.create_task(f(9)); asyncio.run(asyncio.sleep(0, 9))", text: "9"},
			{code: "import threading; out = []\nt = threading.Thread(target=lambda: out.append(asyncio.run(f(10)))); t.start(); t.join(); out", text: "[10]"},
			{code: "await f(11)", text: "11"},
			{code: "left.done()", text: "False"},
			// A program that closes the loop ends its tasks with it, and the next cell has another.
			{code: "loop = asyncio.get_event_loop(); v = loop.run_until_complete(f(12)); loop.close(); v", text: "12"},
			{code: "asyncio.run(f(13))", text: "13"},
			{code: "await f(14)", text: "14"},
		} {
			if strings.Contains(test.code, "Runner") && !runner {
				continue
			}
			o := s.run(test.code)
			if o.text() != test.text || o.reply.Name != test.failure {
				t.Errorf("%q: got %+v, want text %q and the exception %q", test.code, o, test.text, test.failure)
			}
		}
	})
}

// TestNoInputBetweenCells checks that a question of code between cells fails at once: no client
// would answer it.
func TestNoInputBetweenCells(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		port, hear := listen(t)
		s.run(tell)
		stdin := func(r *jupyter.ExecuteRequest) { r.AllowStdin = true }
		for name, code := range map[string]string{
			"a task":   "async def ask():\n    try: said = input('?')\n    except Exception as error: said = type(error).__name__\n    await tell(%d, said)\ntask = asyncio.create_task(ask())",
			"a thread": "import threading\ngate = threading.Event()\ndef ask():\n    gate.wait()\n    try: said = input('?')\n    except Exception as error: said = type(error).__name__\n    asyncio.run(tell(%d, said))\nthreading.Thread(target=ask).start()\nasyncio.get_running_loop().call_soon(gate.set)",
		} {
			s.run(fmt.Sprintf(code, port), stdin)
			if got := hear(); got != "StdinNotImplementedError" {
				t.Errorf("%s: a question between cells gives %q, want %q", name, got, "StdinNotImplementedError")
			}
		}
	})
}

// A callback that does not return keeps a request waiting. An interrupt ends both, and the loop
// continues.
func TestInterruptOfATaskBetweenCells(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		k := newKernel(t, python)
		s := attach(t, k)
		port, hear := listen(t)
		s.run(tell)
		s.run("import os, time\nother = asyncio.create_task(asyncio.sleep(0.01, 'other'))")
		for _, tt := range []struct{ body, before string }{
			{"while True: pass", "1"}, {"time.sleep(3600)", "1"}, {"while True: print('x')", "1"}, {"time.sleep(3600)", "("}, // which does not compile
		} {
			body, begin := tt.body, filepath.Join(t.TempDir(), "begin")
			s.run(fmt.Sprintf("async def spin():\n    while not os.path.exists(%q): await asyncio.sleep(0.01)\n    await tell(%d, 'spins')\n    %s\ntask = asyncio.create_task(spin())", begin, port, body))
			s.run(tt.before)
			must.Do(t, os.WriteFile(begin, nil, 0o600))
			hear()
			r := s.submit("'never'")
			for e := s.next(); e.Request != r; e = s.next() { // until it is no longer in the queue
			}
			k.Interrupt()
			if o := s.wait(r); o.reply.Name != "KeyboardInterrupt" || len(o.errors) != 1 {
				t.Errorf("%s: got %+v, want the reply %q and one error", body, o, "KeyboardInterrupt")
			}
			if o := s.run("type(task.exception()).__name__"); o.text() != "'KeyboardInterrupt'" {
				t.Errorf("%s: the task ended with %+v, want text %q", body, o, "'KeyboardInterrupt'")
			}
			if o := s.run("await other"); o.text() != "'other'" {
				t.Errorf("%s: another task gave %+v, want text %q", body, o, "'other'")
			}
		}
	})
}

// A kernel without tasks waits for requests only, as one without asyncio does.
func TestKernelWithoutTasksNeverRunsItsLoop(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		s.run("import asyncio\nturns, loop = [], asyncio.get_running_loop()\nonce = loop._run_once\ndef count():\n    turns.append(1)\n    once()\nloop._run_once = count")
		for range 10 {
			s.run("1")
		}
		s.run("asyncio.run(asyncio.sleep(0))")
		if o := s.run("len(turns)"); o.text() != "0" {
			t.Errorf("the loop made %s turns without tasks, want 0", o.text())
		}
		s.run("await asyncio.wait_for(asyncio.sleep(0), 3600)")
		s.run("turns.clear()")
		for range 10 {
			s.run("1")
		}
		if o := s.run("len(turns)"); o.text() != "0" {
			t.Errorf("the loop made %s turns after a task ended, want 0", o.text())
		}
	})
}
