// Measures one figure of one queue and prints one line of JSON.
//
//   node main.js PEER FIGURE URL CLIENTS SECONDS COUNT
//
// Each queue is driven through its documented interface, with the settings that its documentation recommends for
// throughput. Nothing is left of an earlier run: the queue's own schema is dropped first.
import { readFileSync } from "node:fs";
import { setTimeout as rest } from "node:timers/promises";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { PgBoss } from "pg-boss";

const BULK = 1000;
// A queue that has not finished by then is stuck.
const PATIENCE_MS = 60_000;
const PAYLOAD = { n: 1.5, text: "a payload of the usual size" };

const [peer, figure, url, clients, seconds, count] = process.argv.slice(2).map((it, at) => (at < 3 ? it : Number(it)));
const pool = new pg.Pool({ connectionString: url, max: 2 });
const number = async (sql) => Number((await pool.query(sql)).rows[0].count);
const pinned = JSON.parse(readFileSync(new URL("package.json", import.meta.url))).dependencies;

const graphile = {
  async open() {
    await pool.query("drop schema if exists graphile_worker cascade");
    const worker = {
      connectionString: url, maxPoolSize: clients + 2, concurrentJobs: 24, pollInterval: 2000,
      logger: new Logger(() => () => {}),
    };
    if (figure !== "idle" && figure !== "waiting") {
      Object.assign(worker, { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 });
    }
    this.preset = { worker };
    this.utils = await makeWorkerUtils({ preset: this.preset });
    await this.utils.migrate();
  },
  one() {
    return this.utils.addJob("noop", PAYLOAD);
  },
  many() {
    return this.utils.addJobs(Array.from({ length: BULK }, () => ({ identifier: "noop", payload: PAYLOAD })));
  },
  async work(done) {
    this.runner = await run({ preset: this.preset, taskList: { noop: async () => done(1) }, noHandleSignals: true });
  },
  // Jobs that are done are deleted.
  open_jobs: () => number("select count(*) from graphile_worker.jobs"),
  locked: () => number("select count(*) from graphile_worker.jobs where locked_at is not null"),
  async close() {
    await this.runner?.stop();
    await this.utils.release();
  },
};

const boss = {
  async open() {
    await pool.query("drop schema if exists pgboss cascade");
    this.boss = new PgBoss({
      connectionString: url, max: clients + 2, useListenNotify: true, supervise: false, schedule: false,
    });
    this.boss.on("error", (error) => process.stderr.write(`${error}\n`));
    await this.boss.start();
    await this.boss.createQueue("noop", { notify: figure === "idle" || figure === "waiting" || figure === "cycle" });
  },
  one() {
    return this.boss.send("noop", PAYLOAD);
  },
  many() {
    return this.boss.insert("noop", Array.from({ length: BULK }, () => ({ data: PAYLOAD })));
  },
  work(done) {
    const options = { batchSize: figure === "idle" ? 1 : 500, localConcurrency: figure === "idle" ? 1 : 2 };
    Object.assign(options, { pollingIntervalSeconds: 0.5, burstWhenBatchFull: figure !== "idle" });
    return this.boss.work("noop", options, async (jobs) => done(jobs.length));
  },
  open_jobs: () => number("select count(*) from pgboss.job where name = 'noop' and state < 'completed'"),
  locked: () => number("select count(*) from pgboss.job where name = 'noop' and state = 'active'"),
  close() {
    return this.boss.stop({ graceful: true, timeout: 5000 });
  },
};

// Until the time is up, on all clients; answers how often.
async function until_over(what) {
  const over = performance.now() + seconds * 1000;
  let ops = 0;
  const client = async () => {
    while (performance.now() < over) {
      await what();
      ops += 1;
    }
  };
  await Promise.all(Array.from({ length: clients }, client));
  return ops;
}

// Until nothing is open any more; the database is asked only after the worker has seen all.
async function all_done(queue, seen, wanted) {
  const patience = performance.now() + PATIENCE_MS;
  for (;;) {
    if (seen() >= wanted && (await queue.open_jobs()) === 0) return;
    if (performance.now() > patience) {
      throw new Error(seen() === 0 ? "the worker never started" : `stuck with ${await queue.open_jobs()} jobs open`);
    }
    await rest(2);
  }
}

const figures = {
  async enqueue(queue) {
    const started = performance.now();
    const ops = await until_over(() => queue.one());
    return { ops, seconds: (performance.now() - started) / 1000 };
  },
  async bulk(queue) {
    const started = performance.now();
    const ops = await until_over(() => queue.many());
    return { ops: ops * BULK, seconds: (performance.now() - started) / 1000 };
  },
  async drain(queue) {
    for (let ready = 0; ready < count; ready += BULK) await queue.many();
    let seen = 0;
    const started = performance.now();
    await queue.work((jobs) => (seen += jobs));
    await all_done(queue, () => seen, count);
    return { ops: count, seconds: (performance.now() - started) / 1000, locked: await queue.locked() };
  },
  async cycle(queue) {
    let seen = 0;
    await queue.work((jobs) => (seen += jobs));
    const started = performance.now();
    const ops = await until_over(() => queue.one());
    await all_done(queue, () => seen, ops);
    return { ops, seconds: (performance.now() - started) / 1000, locked: await queue.locked() };
  },
  async idle(queue) {
    let handed_over;
    await queue.work(() => handed_over?.(performance.now()));
    const ms = [];
    for (let turn = 0; turn < count; turn += 1) {
      await rest(5 + Math.random() * 10);
      const over = new Promise((resolve) => (handed_over = resolve));
      const started = performance.now();
      await queue.one();
      ms.push((await over) - started);
    }
    return { ms };
  },
  async waiting(queue) {
    await queue.work(() => {});
    const sql = "select xact_commit + xact_rollback as count from pg_stat_database where datname = current_database()";
    await rest(1000);
    const before = await number(sql);
    await rest(Math.max(seconds, 0.1) * 1000);
    // The first look is one by itself.
    return { rate: Math.max(0, (await number(sql)) - before - 1) / Math.max(seconds, 0.1) };
  },
};

const queue = { "graphile-worker": graphile, "pg-boss": boss }[peer];
await queue.open();
const measured = await figures[figure](queue);
process.stdout.write(`${JSON.stringify({ version: pinned[peer], ...measured })}\n`);
await Promise.race([queue.close(), rest(3000)]);
process.exit(0);
