// The main thread of a kernel: the server's lines come through standard input, lines for
// it go to standard output. It hands them to the worker, except for an interrupt.
import { FILLED, FINISHED, happened, newChannel, SIGALRM, SIGINT } from "./channel.mjs";

const DELAY = 4; // milliseconds that printed text may wait

const text = new TextEncoder();
const channel = newChannel();
const { control, data, signals } = channel;

// Not a worker of Node's kind, which takes 50 ms of processor time more to start.
const worker = new Worker(new URL("./worker.mjs", import.meta.url), { type: "module" });
worker.postMessage(channel);
worker.onerror = (event) => end(event.message);
worker.onmessage = ({ data }) => {
  if (data !== null) end(data);
  later();
};

// end ends the process and tells the server why.
function end(why) {
  const line = { type: "ending", content: { reason: String(why) } };
  for (let rest = text.encode(JSON.stringify(line) + "\n"); rest.length > 0; ) rest = rest.subarray(Deno.stdout.writeSync(rest));
  Deno.exit(1);
}

// later lets Python send what was printed.
function later() {
  setTimeout(() => signal(SIGALRM), DELAY);
}

let requests = 0; // how many the worker was sent, or will be

// signal has effect only while the worker serves a request. If it has just finished one, the
// signal is taken back: it gets the next one only after this function returns. One that must
// wait for another comes later: it is SIGALRM.
function signal(number) {
  if (Atomics.load(control, FINISHED) === requests) return;
  const before = number === SIGALRM ? Atomics.compareExchange(signals, 0, 0, number) : Atomics.exchange(signals, 0, number);
  if (before !== 0 && before !== number) later();
  if (Atomics.load(control, FINISHED) === requests) Atomics.store(signals, 0, 0);
  happened(control);
}

const waiting = []; // pieces of lines, in order
let handing = false;

async function hand() {
  if (handing) return;
  handing = true;
  while (waiting.length > 0) {
    while (Atomics.load(control, FILLED) !== 0) {
      const filled = Atomics.load(control, FILLED);
      if (filled !== 0) await Atomics.waitAsync(control, FILLED, filled).value;
    }
    const piece = waiting[0].subarray(0, data.length);
    data.set(piece);
    if (piece.length === waiting[0].length) waiting.shift();
    else waiting[0] = waiting[0].subarray(piece.length);
    Atomics.store(control, FILLED, piece.length);
    happened(control);
  }
  handing = false;
}

const interrupt = text.encode('{"type":"interrupt_request"');
const noRequest = ["start", "input_reply"].map((type) => text.encode(`{"type":"${type}"`));
const begins = (line, with_) => with_.every((byte, i) => line[i] === byte);

function take(line) {
  if (begins(line, interrupt)) return signal(SIGINT);
  if (!noRequest.some((type) => begins(line, type))) requests++;
  waiting.push(line);
  hand();
}

let parts = []; // of a line of which the end has not come
const buffer = new Uint8Array(1 << 18);
for (let n; (n = await Deno.stdin.read(buffer)) !== null; ) {
  let rest = buffer.slice(0, n);
  for (let end; (end = rest.indexOf(10)) >= 0; rest = rest.subarray(end + 1)) {
    parts.push(rest.subarray(0, end + 1));
    take(parts.length === 1 ? parts[0] : new Uint8Array(await new Blob(parts).arrayBuffer()));
    parts = [];
  }
  if (rest.length > 0) parts.push(rest);
}
Deno.exit(0); // the server is gone
