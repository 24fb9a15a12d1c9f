// Tries what a page may and may not do, and sends what came of it to REPORT, as a form.
const tries = {
  cookies: () => { document.cookie = "mine=1"; return document.cookie },
  localStorage: () => { localStorage.setItem("a", "1"); return localStorage.getItem("a") },
  indexedDB: () => new Promise((done, fail) => {
    const request = indexedDB.open("a");
    request.onsuccess = () => done("open");
    request.onerror = () => fail(request.error);
  }),
  caches: () => caches.open("a").then(() => "open"),
  serviceWorker: () => navigator.serviceWorker.register(LINKS.worker).then(() => "registered"),
  worker: () => new Promise((done, fail) => {
    const worker = new Worker(LINKS.worker);
    worker.onmessage = () => done("runs");
    worker.onerror = fail;
  }),
  frame: async () => {
    const frame = document.createElement("iframe");
    const loaded = new Promise(done => { frame.onload = done });
    frame.src = "/";
    document.body.append(frame);
    await loaded;
    return frame.contentDocument.body.textContent;
  },
  api: () => fetch("/sandboxes").then(answer => answer.text()),
  routedByHeader: () => fetch("/", {headers: {"E2b-Sandbox-Id": SANDBOX, "E2b-Sandbox-Port": "3000"}}).then(answer => answer.text()),
  signedAndRouted: () => fetch(LINKS.text, {headers: {"E2b-Sandbox-Id": SANDBOX, "E2b-Sandbox-Port": "3000"}}).then(answer => answer.text()),
  everyHeader: () => fetch(LINKS.text, {headers: {"*": "1", "E2b-Sandbox-Id": SANDBOX, "E2b-Sandbox-Port": "3000"}}).then(answer => answer.text()),
  picture: () => new Promise((done, fail) => {
    const picture = new Image();
    picture.onload = () => done(picture.width + " wide");
    picture.onerror = fail;
    picture.src = LINKS.picture;
  }),
  fetch: () => fetch(LINKS.text).then(answer => answer.text()),
  preflight: () => fetch(LINKS.text, {headers: {"X-Trace": "1"}}).then(answer => answer.text()),
  range: () => fetch(LINKS.text, {headers: {Range: "bytes=0-3"}}).then(async answer => answer.status + " " + await answer.text()),
  module: () => import(LINKS.module).then(module => module.name),
  upload: () => fetch(LINKS.upload, {method: "POST", body: (() => {
    const form = new FormData();
    form.append("file", new Blob(["up"]), "up.txt");
    return form;
  })()}).then(answer => String(answer.status)),
};
const report = {origin: self.origin};
const all = NAMES.map(async name => {
  try { report[name] = "yes: " + await tries[name]() } catch (why) { report[name] = "no: " + (why.name || why.type) }
});
Promise.all(all).then(() => {
  const form = document.createElement("form");
  form.method = "post";
  form.action = REPORT;
  const field = document.createElement("input");
  field.name = "report";
  field.value = JSON.stringify(report);
  form.append(field);
  document.body.append(form);
  form.submit();
});
