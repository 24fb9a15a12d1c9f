// What the two threads share. The main thread reads what the server sends, and may interrupt
// the worker, in which Python runs and does not come back to its event loop.

// Words of control.
export const EVENTS = 0; // counts what happened: who waits for anything waits for a change of it
export const FILLED = 1; // bytes in data; 0: the main thread may fill it
export const FINISHED = 2; // how many requests have been served

// Signals, as Python numbers them.
export const SIGINT = 2;
export const SIGALRM = 14; // of package _e2bctl_kernel.wasm: what was printed is to be sent

const words = (n) => new Int32Array(new SharedArrayBuffer(4 * n));

// newChannel returns the memory of a main thread and its worker. Python looks at
// signals[0], takes what is there, and puts 0 in its place.
export function newChannel() {
  return { control: words(3), signals: words(1), data: new Uint8Array(new SharedArrayBuffer(1 << 18)) };
}

export function happened(control) {
  Atomics.add(control, EVENTS, 1);
  Atomics.notify(control, EVENTS);
}
