// Every page: accessible in light and dark, wide and narrow, with requests to its own server alone.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { after, test } from "node:test";
import { AxeBuilder } from "@axe-core/playwright";
import { away, batch, command, facts, node, open, stop } from "./browser.js";

after(stop);

const pages = {
  commands: "/commands",
  command: command(facts.DIAGNOSIS),
  inventory: command(facts.INVENTORY),
  waiting: command(facts.WAITS, away),
  bundle: command(facts.BUNDLE, away),
  html: command(facts.HTML_COMMAND),
  kindChooser: "/commands/run",
  run: `/commands/run?node=node-0&kind=diag.nvml`,
  nodes: "/nodes",
  node: `/nodes/${node}`,
  batches: "/batches",
  batch: `/batches/${batch}`,
  propose: "/batches/propose",
  kinds: "/kinds",
  kind: "/kinds/diag.nvml",
  diff: "/kinds/test.versions?from=1.0.0&to=1.1.0",
  events: "/events",
  audit: "/audit",
  entry: "/audit/0",
  settings: "/settings",
  history: "/settings/system/commands",
  nothing: "/nothing",
};
// Those of which the documentation has pictures.
const pictured = ["commands", "command", "run", "nodes", "node", "batches", "batch", "kinds", "kind", "events", "audit", "entry", "history"];

const looks = async (page) => {
  const found = await new AxeBuilder({ page }).withTags(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]).analyze();
  const told = found.violations.map((it) => `${it.id}: ${it.help}: ${it.nodes.map((at) => `${at.html} ${at.failureSummary}`).join("\n  ")}`);
  assert.deepEqual(told, []);
  const [wide, seen] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(wide <= seen, `the page is ${wide} px wide in a window of ${seen} px`);
};

for (const scheme of ["light", "dark"]) {
  for (const width of [1280, 360]) {
    test(`the login is accessible, ${scheme}, ${width} px`, async (t) => {
      const page = await open(t, { width, scheme, as: null });
      await page.goto("/login");
      await looks(page);
      page.clean();
    });

    test(`every page is accessible and asks its own server alone, ${scheme}, ${width} px`, async (t) => {
      const page = await open(t, { width, scheme });
      page.allow(/status of 404/);
      const failed = [];
      for (const [name, path] of Object.entries(pages)) {
        const answer = await page.goto(path);
        try {
          assert.equal(answer.status(), name === "nothing" ? 404 : 200);
          assert.equal(await page.evaluate(() => window.broken), undefined, "what somebody wrote was run");
          await looks(page);
          page.clean();
        } catch (error) {
          failed.push(`${name}: ${error.message}`);
        }
        if (process.env.SCREENSHOTS && scheme === "light" && width === 1280 && pictured.includes(name)) {
          mkdirSync(process.env.SCREENSHOTS, { recursive: true });
          await page.screenshot({ path: `${process.env.SCREENSHOTS}/${name}.png` });
        }
      }
      assert.deepEqual(failed, []);
    });
  }
}

test("every page has one heading of the first rank, a title, and its place in the menu", async (t) => {
  const page = await open(t);
  for (const [name, path] of Object.entries(pages).filter(([name]) => name !== "nothing")) {
    await page.goto(path);
    assert.equal(await page.locator("h1").count(), 1, name);
    assert.match(await page.title(), /^\S.* · better-compute$/, name);
    assert.equal(await page.locator("nav a[aria-current=page]").count(), 1, name);
  }
});

test("without JavaScript every page says the same", async (t) => {
  const page = await open(t, { javascript: false });
  for (const [name, path] of Object.entries(pages)) {
    if (name !== "nothing") assert.equal((await page.goto(path)).status(), 200, name);
  }
});
