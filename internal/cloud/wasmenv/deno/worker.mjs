// The worker of a kernel: it runs Python, from the snapshot that setup made.
import { EVENTS, FILLED, FINISHED, happened } from "./channel.mjs";
import { loadPyodide } from "./pyodide/pyodide.mjs";

const here = (name) => new URL(name, import.meta.url).pathname;
const { control, data, signals } = await new Promise((resolve) => {
  onmessage = ({ data }) => resolve(data);
});
const { readFile, stdout } = Deno;
const post = postMessage;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

let parts = [];
let held = false; // signals wait

const bridge = {
  // send writes a line to the server.
  send(line) {
    for (let rest = encoder.encode(line); rest.length > 0; ) rest = rest.subarray(stdout.writeSync(rest));
  },
  // receive returns a line of the server, or undefined when it is time to look at signals.
  receive() {
    for (;;) {
      const events = Atomics.load(control, EVENTS);
      if (Atomics.load(signals, 0) !== 0) return undefined;
      const filled = Atomics.load(control, FILLED);
      if (filled === 0) {
        Atomics.wait(control, EVENTS, events);
        continue;
      }
      const part = data.slice(0, filled);
      Atomics.store(control, FILLED, 0);
      Atomics.notify(control, FILLED);
      parts.push(decoder.decode(part, { stream: true }));
      if (part[part.length - 1] !== 10) continue;
      const line = parts.join("");
      parts = [];
      return line;
    }
  },
  // wait returns after some milliseconds, -1 for no end, or earlier, to look at signals.
  wait(time) {
    const events = Atomics.load(control, EVENTS);
    if (Atomics.load(signals, 0) === 0) Atomics.wait(control, EVENTS, events, time < 0 ? Infinity : time);
  },
  // hold keeps signals back until release, where they take effect. What JavaScript calls must
  // not get them.
  hold() {
    held = true;
  },
  release() {
    held = false;
    python.checkInterrupt();
  },
  // idle is wait for a Python that is suspended meanwhile: promises settle.
  async idle(time) {
    const events = Atomics.load(control, EVENTS);
    if (Atomics.load(signals, 0) === 0) await Atomics.waitAsync(control, EVENTS, events, time < 0 ? Infinity : time).value;
  },
  // wake ends idle.
  wake() {
    happened(control);
  },
  // schedule asks for the signal that what was printed is to be sent.
  schedule() {
    post(null);
  },
  // finish says that a request has been served, and no signal is for it any longer.
  finish() {
    Atomics.add(control, FINISHED, 1);
    Atomics.store(signals, 0, 0);
  },
};

// end takes the place of what would end this thread, which the main one would not hear of.
function end(status) {
  stop(`Python has ended with the status ${Number(status ?? 0)}`);
}

// stop has the main thread end the process, and say why.
function stop(why) {
  post(why);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}
globalThis.close = Deno.exit = globalThis.process.exit = end;

// of wraps operations on files: what Deno refuses is an error of Python as any other.
function of(FS, operations) {
  const EPERM = 63;
  return Object.fromEntries(Object.entries(operations).map(([name, operation]) => [name, (...given) => {
    try {
      return operation(...given);
    } catch (error) {
      if (error instanceof FS.ErrnoError) throw error;
      throw new FS.ErrnoError(EPERM);
    }
  }]));
}

// show makes directories of the sandbox visible to Python, where they are.
function show(FS, places) {
  const { NODEFS } = FS.filesystems;
  NODEFS.node_ops = of(FS, NODEFS.node_ops);
  NODEFS.stream_ops = of(FS, NODEFS.stream_ops);
  for (const place of places) {
    FS.mkdirTree(place);
    FS.mount(NODEFS, { root: place }, place);
  }
}

const python = await loadPyodide({ indexURL: here("./pyodide/"), _loadSnapshot: readFile(here("./snapshot")) });
delete python._api.config._loadSnapshot; // 30 MB that nothing needs any longer
// Python reads a signal, and then writes 0 in its place: one that came in between would be lost.
python.setInterruptBuffer({
  get 0() {
    return held || signals[0] === 0 ? 0 : Atomics.exchange(signals, 0, 0);
  },
  set 0(_) {},
});
const start = JSON.parse(bridge.receive());
show(python.FS, start.content.places);
const tell = (name, text) => bridge.send(JSON.stringify({ type: "stream", content: { name, text } }) + "\n");
for (const [name, set] of [["stdout", "setStdout"], ["stderr", "setStderr"]]) {
  // Only what does not go through sys.stdout and sys.stderr comes here.
  const text = new TextDecoder();
  const write = (bytes) => {
    tell(name, text.decode(bytes, { stream: true }));
    return bytes.length;
  };
  python[set]({ write });
}

// What JavaScript does while Python waits may fail without ending it.
for (const type of ["error", "unhandledrejection"]) {
  addEventListener(type, (event) => {
    event.preventDefault();
    tell("stderr", `${event.error ?? event.reason}\n`);
  });
}
python.pyimport("_e2bctl_kernel.wasm").main.callPromising(bridge, python.toPy(start.env), start.content.directory).catch((error) => {
  console.error(error);
  if (error.status !== undefined) end(error.status); // as os._exit gave it
  if (error.message === "unreachable") stop("Python has aborted"); // C's abort is compiled to this instruction
  stop(`Python has failed: ${error.name}: ${error.message}`);
});
