"use strict";

const { spawn, spawnSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

const platforms = Object.keys(require("./package.json").optionalDependencies);

function binary() {
  const platform = `@e2bctl/${process.platform}-${process.arch}`;
  if (!platforms.includes(platform)) {
    const names = platforms.map((name) => name.slice("@e2bctl/".length)).join(", ");
    throw new Error(`there is no e2bctl for ${process.platform}-${process.arch}, only for ${names}`);
  }
  let directory;
  try {
    directory = path.dirname(require.resolve(`${platform}/package.json`));
  } catch {
    throw new Error(
      `the package ${platform}, which has the program, is not installed: install e2bctl again on this system, ` +
        "without --omit=optional, and without node_modules from another system",
    );
  }
  return path.join(directory, "bin", process.platform === "win32" ? "e2bctl.exe" : "e2bctl");
}

function makeDirectory() {
  try {
    return fs.mkdtempSync(path.join(os.tmpdir(), "e2bctl-"));
  } catch (error) {
    throw new Error(`make a directory for the state of the cloud: ${error.message}: set ${process.platform === "win32" ? "TEMP" : "TMPDIR"} to a directory of your own`);
  }
}

async function localCloud(args = []) {
  const program = binary();
  const directory = makeDirectory();
  const state = path.join(directory, "state");
  const command = ["local", "up", "--state-dir", state, "--port", "0", "--idle", "5m", "-o", "json", ...args];
  const log = path.join(directory, "log");
  const stderr = fs.openSync(log, "w");
  const child = spawn(program, command, { stdio: ["ignore", "pipe", stderr], windowsHide: true });
  fs.closeSync(stderr);
  const ended = new Promise((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("close", (code, signal) => resolve(`it ended with ${signal ?? `status ${code}`}`));
  });
  const down = ["local", "down", "--state-dir", state];
  const options = { stdio: "ignore", windowsHide: true };
  const remove = () => fs.rmSync(directory, { recursive: true, force: true });
  const endNow = () => {
    spawnSync(program, down, { ...options, timeout: 60_000 });
    remove();
  };
  process.once("exit", endNow);

  async function stop() {
    child.ref();
    const timer = setTimeout(() => child.kill("SIGKILL"), 60_000);
    if (process.platform === "win32") {
      // There a signal is the end at once, and containers would stay.
      spawn(program, down, options).once("error", () => child.kill());
    } else {
      child.kill();
    }
    await ended;
    clearTimeout(timer);
    process.removeListener("exit", endNow);
    remove();
  }

  let record;
  try {
    record = await firstRecord(child.stdout, ended);
  } catch (error) {
    const text = fs.readFileSync(log, "utf8").trim();
    await stop();
    throw new Error(`${[program, ...command].join(" ")}: ${error.message}${text && `: ${text}`}`);
  }
  // A program that forgets close ends anyway, and the cloud with it.
  child.unref();
  child.stdout.unref();

  const env = Object.fromEntries(record.env.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]));
  const before = Object.fromEntries(Object.keys(env).map((name) => [name, process.env[name]]));
  Object.assign(process.env, env);
  let closed;
  const close = () => {
    closed ??= (async () => {
      for (const [name, value] of Object.entries(before)) {
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
      }
      await stop();
    })();
    return closed;
  };
  const cloud = { url: record.url, apiKey: record.apiKey, env, close };
  if (Symbol.asyncDispose) cloud[Symbol.asyncDispose] = close;
  return cloud;
}

// firstRecord returns the line of JSON that a program prints once it is ready.
async function firstRecord(stdout, ended) {
  stdout.setEncoding("utf8");
  const line = await new Promise((resolve, reject) => {
    let text = "";
    stdout.on("data", (more) => {
      if (text.includes("\n")) return; // the rest is read and dropped, so that the program never waits
      text += more;
      if (text.includes("\n")) resolve(text);
    });
    ended.then((reason) => reject(new Error(reason)));
  });
  return JSON.parse(line.slice(0, line.indexOf("\n")));
}

module.exports = { binary, localCloud };
