// A browser for one test: Chromium, headless, that notes whatever no page may do.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const need = (name) => {
  const value = process.env[name];
  assert.ok(value, `${name} is not set; tests/e2e/web starts these tests`);
  return value;
};
export const url = need("URL");
export const token = need("TOKEN");
export const node = need("NODE");
export const away = need("NODE_AWAY");
export const batch = need("BATCH");
export const html = need("HTML");
export const facts = process.env;

export const command = (id, on = node) => `/commands/${on}/${id}`;

const args = process.getuid() === 0 ? ["--no-sandbox"] : [];
let started;
export const start = async () => {
  started ??= await chromium.launch({ executablePath: need("CHROMIUM"), headless: true, args });
  return started;
};
export const stop = async () => { await started?.close(); };

// Calls a method of the API, as programs do.
export const call = async (method, body, as = token) => {
  const answer = await fetch(`${url}/v1/${method}`, {
    method: "POST",
    headers: { authorization: `Bearer ${as}`, "content-type": "application/json" },
    body: JSON.stringify({ tenantId: facts.TENANT, ...body }),
  });
  const said = await answer.json();
  assert.ok(answer.ok, `${method}: ${JSON.stringify(said)}`);
  return said;
};

// What no page can do: see tests/e2e/web/main.rs.
export const act = async (what) => {
  const answer = await fetch(`${need("DOOR")}/${what}`, { method: "POST" });
  assert.equal(answer.status, 204, what);
};

// A window of its own. `page.wrong` is what it may not have done; `allow` names what one test does on purpose.
export const open = async (t, { width = 1280, scheme = "light", as = token, javascript = true } = {}) => {
  const browser = await start();
  const context = await browser.newContext({
    baseURL: url, viewport: { width, height: 800 }, colorScheme: scheme, javaScriptEnabled: javascript, acceptDownloads: true,
    reducedMotion: "reduce",
  });
  t.after(() => context.close());
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  const wrong = [];
  const allowed = [];
  page.allow = (pattern) => allowed.push(pattern);
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== new URL(url).origin) wrong.push(`a request to ${request.url()}`);
  });
  page.on("console", (message) => {
    if (message.type() === "error" || message.text().includes("Content Security Policy")) wrong.push(message.text());
  });
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.clean = () => {
    const left = wrong.filter((it) => !allowed.some((pattern) => pattern.test(it)));
    assert.deepEqual(left, [], "a page asked somebody else, failed, or broke its policy");
  };
  if (as) await logIn(page, as);
  return page;
};

export const logIn = async (page, as = token) => {
  page.allow(/status of 401/);
  if (!page.url().startsWith(url)) await page.goto("/commands");
  await page.getByLabel("API token").fill(as);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("button", { name: "Log out" }).waitFor();
};

// The page that is there now was never loaded anew since this was called, if the answer is true.
export const marked = async (page) => {
  await page.evaluate(() => { window.marked = true; });
  return () => page.evaluate(() => window.marked === true);
};
