// Makes the snapshot from which kernels start: Python with the driver loaded. Its arguments
// are the directory of the driver and the file to write.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const here = (name) => new URL(name, import.meta.url).pathname;
const [driver, to] = Deno.args;

const python = await loadPyodide({ indexURL: here("./pyodide/"), _makeSnapshot: true });
const library = "/lib/e2bctl/_e2bctl_kernel";
python.FS.mkdirTree(library);
for (const { name } of Deno.readDirSync(driver)) {
  if (name.endsWith(".py")) python.FS.writeFile(`${library}/${name}`, Deno.readFileSync(`${driver}/${name}`));
}
python.runPython(`
import sys
sys.path.insert(0, "/lib/e2bctl")
import _e2bctl_kernel.wasm
sys.path.remove("/lib/e2bctl")
`);
Deno.writeFileSync(to, python.makeMemorySnapshot());
