#!/usr/bin/env node
// Runs the program of e2bctl that was installed for this platform.
"use strict";

const { spawn } = require("node:child_process");
const { binary } = require("../index.cjs");

function fail(error) {
  console.error(`e2bctl: ${error.message}`);
  process.exit(1);
}

let path;
try {
  path = binary();
} catch (error) {
  fail(error);
}
const program = spawn(path, process.argv.slice(2), { stdio: "inherit" });
program.on("error", fail);
// A terminal sends its signals to the program, too. All others are sent on.
const terminal = [process.stdin, process.stdout, process.stderr].some((stream) => stream.isTTY);
for (const signal of ["SIGINT", "SIGHUP", "SIGQUIT", "SIGTERM"]) {
  process.on(signal, () => {
    if (!terminal || signal === "SIGTERM") program.kill(signal);
  });
}
program.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
