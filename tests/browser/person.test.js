// What a person does: logs in, runs, reads why something waits, follows, stops, and is not fooled by what others wrote.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { after, test } from "node:test";
import { act, away, batch, call, command, facts, html, logIn, marked, node, open, stop, token, url } from "./browser.js";

after(stop);

const state = (page) => page.locator("#standing .state");
const stands = (page, word) => page.locator("#standing .state", { hasText: word }).waitFor();
const run = (kind, payload, on = node) =>
  call("commands.run", { nodeId: on, kind, payload, idempotencyKey: randomUUID(), notAfterSeconds: 600 });

test("a wrong token is told, and the right one leads to where the person wanted to go", async (t) => {
  const page = await open(t, { as: null });
  page.allow(/status of 401/);
  await page.goto(`/nodes/${node}`);
  await page.getByLabel("API token").fill("bct_wrong");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("alert").waitFor();
  await logIn(page);
  assert.equal(new URL(page.url()).pathname, `/nodes/${node}`);
  page.clean();
});

test("no token stands in a page, a cookie or an address, and scripts cannot read the session", async (t) => {
  const page = await open(t);
  await page.goto("/settings");
  assert.ok(!(await page.content()).includes(token));
  assert.equal(await page.evaluate(() => document.cookie), "");
  const cookies = await page.context().cookies();
  assert.ok(cookies.length === 1 && cookies[0].httpOnly && cookies[0].sameSite === "Strict");
  assert.ok(!cookies[0].value.includes(token) && !page.url().includes(token));
});

test("a diagnostic is run by keyboard alone, and followed to its end without a reload", async (t) => {
  const page = await open(t);
  await page.goto("/commands/run?node=node-0&kind=diag.nvml");
  // Tab goes through the page in its order, from the link that skips the menu on.
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  await page.keyboard.press("Enter");
  let reached = "";
  for (let at = 0; at < 60 && reached !== "Run it"; at += 1) {
    await page.keyboard.press("Tab");
    reached = await page.evaluate(() => document.activeElement.textContent.trim());
  }
  assert.equal(reached, "Run it");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/commands\/node_/);
  const stayed = await marked(page);
  await stands(page, "succeeded");
  await page.locator("#checks").waitFor();
  assert.equal(await page.locator("#checks tbody tr").count() >= 8, true, "eight GPUs");
  assert.ok(await stayed(), "the page was loaded anew");
  page.clean();
});

test("a command whose node is away says why it waits", async (t) => {
  const page = await open(t);
  await page.goto(command(facts.WAITS, away));
  assert.match(await page.locator("#standing").innerText(), /not connected|no session|offline/i);
  page.clean();
});

test("output is followed while a program writes it", async (t) => {
  const go = `${facts.GO}-${randomUUID()}`;
  const script = `echo first; echo oh >&2; while [ ! -e ${go} ]; do sleep 0.05; done; echo '${html.replaceAll("'", '"')}'`;
  const { id } = await run("test.program", { script });
  const page = await open(t);
  await page.goto(command(id));
  const stayed = await marked(page);
  await page.locator("#output .stdout", { hasText: "first" }).waitFor();
  await page.locator("#output .stderr", { hasText: "oh" }).waitFor();
  await writeFile(go, "");
  await page.locator("#output", { hasText: "<script>window.broken" }).waitFor();
  await stands(page, "succeeded");
  assert.equal(await page.evaluate(() => window.broken), undefined);
  assert.ok(await stayed());
  page.clean();
});

test("a command that runs is stopped with a button", async (t) => {
  const { id } = await run("test.program", { script: "sleep 50" });
  const page = await open(t);
  await page.goto(command(id));
  await stands(page, "running");
  await page.getByRole("button", { name: "Cancel it" }).click();
  await stands(page, "cancelled");
  assert.equal(await page.getByRole("button", { name: "Cancel it" }).count(), 0);
  page.clean();
});

test("the list is narrowed by its filters", async (t) => {
  const page = await open(t);
  await page.goto("/commands");
  await page.getByLabel("Kind", { exact: true }).fill("diag.nvml");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.waitForURL(/kind=diag\.nvml/);
  const kinds = await page.locator("td[data-name=Kind]").allInnerTexts();
  assert.ok(kinds.length > 0 && kinds.every((it) => it.trim() === "diag.nvml"), kinds.join());
  await page.goto("/nodes?session=offline");
  assert.deepEqual(await page.locator("tbody th").allInnerTexts(), ["node-1"]);
  await page.goto("/nodes?label=rack%3D7");
  assert.deepEqual(await page.locator("tbody th").allInnerTexts(), ["node-0"]);
  page.clean();
});

test("a command that is queued elsewhere appears in the list by itself", async (t) => {
  const page = await open(t);
  await page.goto("/commands");
  const stayed = await marked(page);
  const { id } = await run("test.count", { gpu: "GPU-51d00000-0000-4000-8000-000000000000", holdMs: 0 });
  await page.locator("td.mono", { hasText: id }).waitFor();
  assert.ok(await stayed());
  await page.goto("/events");
  await page.locator("td[data-name=About]", { hasText: id }).first().waitFor();
  const next = await run("test.count", { gpu: "GPU-51d00000-0000-4000-8000-000000000000", holdMs: 0 });
  await page.locator("td[data-name=About]", { hasText: next.id }).first().waitFor();
  page.clean();
});

test("what is wrong with a form stands beside its field, and what was typed is still there", async (t) => {
  const page = await open(t);
  page.allow(/status of 4\d\d/);
  await page.goto("/commands/run?node=node-0&kind=test.program");
  const script = page.getByLabel(/script/i).first();
  await script.fill("echo kept");
  await page.getByLabel("Node", { exact: true }).fill("no-such-node");
  await page.getByRole("button", { name: "Run it" }).click();
  await page.locator(".field", { has: page.locator("#node") }).locator(".problem").waitFor();
  assert.equal(await script.inputValue(), "echo kept");
  page.clean();
});

test("a payload that is too large gets words, and nothing of it is lost", async (t) => {
  const page = await open(t);
  page.allow(/status of 4\d\d/);
  await page.goto("/commands/run?node=node-0&kind=test.program");
  const script = page.getByLabel(/script/i).first();
  const text = "x".repeat(2_000_000);
  // As by a browser without the page's own check.
  await page.evaluate(() => { document.querySelector("form.fields").noValidate = true; });
  await script.evaluate((field, text) => { field.value = text; }, text);
  await page.getByRole("button", { name: "Run it" }).click();
  await page.getByRole("alert").waitFor();
  assert.equal((await script.inputValue()).length, text.length);
  page.clean();
});

test("a form that is sent twice is one command", async (t) => {
  const page = await open(t);
  await page.goto("/commands/run?node=node-1&kind=diag.nvml");
  const twice = await page.evaluate(async () => {
    const form = document.querySelector("form[method=post].fields");
    const body = new URLSearchParams(new FormData(form));
    const send = () => fetch(form.action, { method: "POST", body });
    return (await Promise.all([send(), send()])).map((it) => it.url);
  });
  assert.equal(twice[0], twice[1]);
  assert.match(twice[0], /cmd_/);
  page.clean();
});

test("a session that ends in the middle of a form loses nothing", async (t) => {
  const made = await call("tokens.create", { identity: "passing", label: "t", grants: [{ permission: "compute:*", resource: "*" }] });
  const page = await open(t, { as: made.token });
  page.allow(/status of 4\d\d/);
  await page.goto("/commands/run?node=node-0&kind=test.program");
  await page.getByLabel(/script/i).first().fill("echo typed before");
  await call("tokens.revoke", { id: made.id });
  await page.getByRole("button", { name: "Run it" }).click();
  await page.getByText("What you typed is kept").waitFor();
  await logIn(page);
  assert.equal(await page.getByLabel(/script/i).first().inputValue(), "echo typed before");
  await page.getByRole("button", { name: "Run it" }).click();
  await page.waitForURL(/cmd_/);
  await stands(page, "succeeded");
  page.clean();
});

test("HTML that a person, a kind or a node wrote is text on every page", async (t) => {
  const page = await open(t);
  for (const [path, words] of [
    ["/kinds", html], ["/kinds/test.versions", html], ["/batches", html], [`/batches/${batch}`, html],
    ["/nodes", "<b>x</b>"], [`/nodes/${node}`, "<b>x</b>"], [command(facts.HTML_COMMAND), "<script>"],
  ]) {
    await page.goto(path);
    assert.ok((await page.locator("main").innerText()).includes(words.slice(0, 20)), path);
    assert.equal(await page.locator("main script, main img").count(), 0, path);
    assert.equal(await page.evaluate(() => window.broken), undefined, path);
  }
  page.clean();
});

test("a batch shows its scope and how to approve it offline, and has no button that approves", async (t) => {
  const page = await open(t);
  await page.goto(`/batches/${batch}`);
  assert.match(await page.locator("#scope").innerText(), /test\.count-destructive/);
  assert.match(await page.locator("main").innerText(), /1 of the group a and 1 of the group b/);
  assert.match(await page.locator("#offline").innerText(), new RegExp(`batch export ${batch}`));
  assert.match(await page.locator("main").innerText(), /What is shown here is what approvers sign/);
  assert.equal(await page.getByRole("button", { name: /approve/i }).count(), 0);
  assert.equal(await page.locator("form[action*=approve]").count(), 0);
  page.clean();
});

test("a batch is proposed with a form, and rejected with a reason", async (t) => {
  const page = await open(t);
  page.allow(/status of 400/);
  await page.goto("/batches/propose");
  await page.getByLabel(/^Why/).fill("rack 8 goes");
  await page.getByLabel(/^Nodes/).fill("node-0 no-such-node");
  await page.getByLabel(/^Kinds/).fill("test.count-destructive");
  await page.getByRole("button", { name: "Propose it" }).click();
  await page.locator("#nodes-problem .problem").waitFor();
  assert.equal(await page.getByLabel(/^Why/).inputValue(), "rack 8 goes");
  await page.getByLabel(/^Nodes/).fill("node-0\nnode-1");
  await page.getByRole("button", { name: "Propose it" }).click();
  await page.waitForURL(/\/batches\/batch_/);
  assert.equal(await page.locator("#scope tbody tr").count(), 2);
  await page.getByLabel("Why").fill("not today");
  await page.getByRole("button", { name: "Reject it" }).click();
  await stands(page, "rejected");
  assert.match(await page.locator("#standing").innerText(), /not today/);
  assert.equal(await page.getByRole("button", { name: "Reject it" }).count(), 0);
  page.clean();
});

test("a kind shows its versions, what it may do, and how two versions differ", async (t) => {
  const page = await open(t);
  await page.goto("/kinds/test.versions");
  assert.deepEqual((await page.locator("#versions tbody th").allInnerTexts()).sort(), ["1.0.0", "1.1.0"]);
  assert.match(await page.locator("#capabilities").innerText(), /ask the GPUs' driver/);
  await page.getByLabel("From").selectOption("1.0.0");
  await page.getByLabel("To", { exact: true }).selectOption("1.1.0");
  await page.getByRole("button", { name: "Compare" }).click();
  assert.match(await page.locator("#diff").innerText(), /^- capabilities .*upload/m);
  await page.goto("/kinds/test.versions?from=1.1.0&to=1.0.0");
  assert.match(await page.locator("main").innerText(), /--accept-wider/);
  page.clean();
});

test("an entry of the log is verified on its page", async (t) => {
  const page = await open(t);
  await page.goto("/audit");
  await page.locator("td[data-name=Place] a").first().click();
  assert.equal(await page.locator("#proof .state.pass").count(), 2);
  assert.match(await page.locator("main").innerText(), /audit verify --root/);
  page.clean();
});

test("a support bundle is downloaded, whole and by its files", async (t) => {
  const page = await open(t);
  await page.goto(command(facts.BUNDLE, away));
  const [whole] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Download it" }).click()]);
  const bytes = await readFile(await whole.path());
  assert.equal(bytes.subarray(0, 4).toString("hex"), "28b52ffd", "Zstandard");
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "var/log/app.log" }).click()]);
  assert.equal(await readFile(await file.path(), "utf8"), "the disk is full\n");
  page.clean();
});

test("a node shows its session, lanes, kinds, certificates and inventory, and that it went away", async (t) => {
  const page = await open(t);
  await page.goto(`/nodes/${node}`);
  const stayed = await marked(page);
  await stands(page, "connected");
  assert.deepEqual(await page.locator("#lanes td[data-name='At most']").allInnerTexts(), ["8", "4", "2"]);
  const text = await page.locator("main").innerText();
  for (const words of ["test.count", "All of it", "active", "rack=7"]) assert.ok(text.includes(words), words);
  await act("node-down");
  await stands(page, "offline");
  await act("node-up");
  await stands(page, "connected");
  assert.ok(await stayed());
  page.clean();
});

test("a page goes on by itself when the server was away", async (t) => {
  const { id } = await run("test.count", { gpu: "GPU-51d00000-0000-4000-8000-000000000000", holdMs: 0 }, away);
  const page = await open(t);
  page.allow(/Failed to load resource|ERR_|net::/);
  await page.goto(command(id, away));
  const stayed = await marked(page);
  await act("server-down");
  await page.locator("#connection:not([hidden])").waitFor();
  await act("server-up");
  await call("commands.cancel", { nodeId: away, commandId: id });
  await stands(page, "cancelled");
  await page.locator("#connection[hidden]").waitFor({ state: "attached" });
  assert.ok(await stayed());
  page.clean();
});

test("whoever logs out is out, and the way back shows nothing", async (t) => {
  const page = await open(t);
  page.allow(/status of 401/);
  await page.goto(`/nodes/${node}`);
  const cookies = await page.context().cookies();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("API token").waitFor();
  // The old cookie opens nothing any more.
  await page.context().addCookies(cookies);
  const answer = await page.goto(`${url}/commands`);
  assert.equal(answer.status(), 401);
  await page.goBack();
  await page.getByLabel("API token").waitFor();
  page.clean();
});
