/** The programs of the README against a control plane and a node, in this order: `tests/e2e/typescript` starts them. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { ApiError, Client, type Command, NOT_IDEMPOTENT, isOver } from '@better-compute/client';
import { callOff, countByState, listFailed, rebootInBatch, refreshInventory, whyRefused } from '../../examples/commands.js';
import { followSettled, readOutput, runToItsEnd } from '../../examples/following.js';
import { proxyTo } from './proxy.js';

function setting(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set: run \`cargo xtask test typescript\``);
  return value;
}

const url = setting('BETTER_COMPUTE_URL');
const token = setting('BETTER_COMPUTE_TOKEN');
const tenantId = setting('TEST_TENANT');
const nodeId = setting('TEST_NODE');
const client = new Client({ url, token });
/** So that what fails to happen fails the test. */
const patience = (): { signal: AbortSignal } => ({ signal: AbortSignal.timeout(50_000) });

function script(text: string, idempotencyKey: string): Promise<Command> {
  return client.commands.run({ nodeId, kind: 'test.program', payload: { script: text }, idempotencyKey });
}

test('a reboot outside of a batch is refused; in one it waits for its approval, and then runs', async () => {
  assert.equal(await whyRefused(client, nodeId), 'batch-required');
  const batch = await rebootInBatch(client, tenantId, nodeId);
  assert.match(batch.batchId, /^batch_/);
  assert.equal((await rebootInBatch(client, tenantId, nodeId)).batchId, batch.batchId, 'the same keys change nothing');
  const { items } = await client.commands.list({ nodeId, state: 'pending' });
  const held = items[0] ?? assert.fail('it is queued');
  assert.deepEqual([items.length, held.kind, held.batchId], [1, 'node.reboot', batch.batchId]);
  assert.deepEqual([held.awaitingApproval, held.notBefore], [true, undefined]);

  const words = ['batch', 'approve', '--tenant', tenantId, '--batch', batch.batchId];
  await promisify(execFile)(setting('TEST_PROGRAM'), [...words, '--key', setting('TEST_APPROVER_KEY'), '--yes']);
  const over = await client.commands.wait(held, patience());
  assert.deepEqual([over.state, over.result], ['succeeded', { rebooted: true }]);
  assert.deepEqual([over.awaitingApproval, over.batchId], [undefined, batch.batchId]);
});

test('a command is queued once for each key, and waited for', async () => {
  const command = await refreshInventory(client, tenantId, nodeId);
  assert.match(command.id, /^cmd_/);
  assert.ok(command.seq > 0 && command.retrySafe && Date.parse(command.notAfter) > Date.parse(command.createdAt));
  assert.equal((await refreshInventory(client, tenantId, nodeId)).id, command.id);
  const over = await client.commands.wait(command, patience());
  assert.equal(over.state, 'succeeded', over.reason);
  assert.deepEqual(Object.keys((over.result as { sections: object }).sections), ['gpus']);
  assert.equal((await client.commands.get({ nodeId, commandId: command.id })).seq, command.seq);
  assert.equal((await runToItsEnd(client, nodeId)).state, 'succeeded');
});

test('promise 20: a wait ends although no event ever comes', async () => {
  const deaf: typeof fetch = (input, init) => (String(input).includes('/v1/events.watch') ? new Promise(() => {}) : fetch(input, init));
  const unheard = new Client({ url, token, tenantId, fetch: deaf });
  const command = await script('sleep 0.2', 'unheard');
  assert.ok(!isOver(command));
  assert.equal((await unheard.commands.wait(command, { pollMs: 50, ...patience() })).state, 'succeeded');
});

test('what a command writes is read while it runs, until it is called off', async () => {
  const command = await script('echo läst; while :; do sleep 0.1; done', 'endless');
  let said = '';
  let ends: Promise<Command> | undefined;
  await readOutput(client, command, (text) => {
    said += text;
    if (said === 'läst\n') ends = callOff(client, tenantId, nodeId, command.id);
  });
  assert.equal(said, 'läst\n');
  assert.ok((await ends)?.cancelRequestedAt !== undefined, 'it ran when it was called off');
  assert.equal((await client.commands.wait(command, patience())).state, 'cancelled');
  assert.equal((await callOff(client, tenantId, nodeId, command.id)).state, 'cancelled', 'what is over stays as it is');
});

test('commands are listed, page after page', async () => {
  const payload = { gpu: 'GPU-that-is-not-there', holdMs: 0 };
  const failing = await client.commands.run({ nodeId, kind: 'test.count', payload, idempotencyKey: 'fails' });
  const failed = await client.commands.wait(failing, patience());
  assert.equal(failed.state, 'failed');
  const items = await listFailed(client, tenantId, nodeId);
  assert.deepEqual(items.map(({ id, reason }) => [id, reason]), [[failed.id, failed.reason]]);

  const all = await client.commands.list({ nodeId });
  const paged = [];
  for await (const { seq } of client.commands.listAll({ nodeId, limit: 2 })) paged.push(seq);
  assert.deepEqual(paged, all.items.map(({ seq }) => seq));
  assert.ok(paged.length > 4);
  const counts = await countByState(client, nodeId);
  assert.deepEqual([counts.get('cancelled'), counts.get('failed')], [1, 1]);
});

test('events are told once and in order over cuts of the connection, and from any of them on', async () => {
  const proxy = await proxyTo(url);
  const watcher = new Client({ url: proxy.url, token, tenantId });
  const settled: [string, unknown][] = [];
  const expected: string[] = [];
  let cuts = 0;
  const options = { onInterrupted: () => (cuts += 1), ...patience() };
  const runNext = async (): Promise<void> => {
    const { id } = await script('true', `watched-${expected.length}`);
    expected.push(id);
  };
  const onOpen = (): void => void (expected.length === 0 && runNext());
  for await (const event of watcher.events.watch({ nodeId }, { ...options, onOpen })) {
    if (event.topic !== 'command.settled' || event.id === undefined) continue;
    settled.push([event.id, (event.body as { commandId: string }).commandId]);
    if (settled.length === 4) break;
    // While nobody is connected, the next one runs to its end.
    assert.equal(proxy.cut(), 1);
    await runNext();
    await client.commands.wait({ nodeId, commandId: expected.at(-1) ?? '' }, patience());
  }
  proxy.close();
  assert.deepEqual(settled.map(([, commandId]) => commandId), expected);
  assert.ok(cuts >= 3, `${cuts}`);

  const later: string[] = [];
  const [second = ''] = settled[1] ?? [];
  await followSettled(client, second, async ({ id }) => later.push(id) === 2);
  assert.deepEqual(later, settled.slice(2).map(([id]) => id));
});

test('refusals are told with their code and what breaks which rule', async () => {
  const refused = async (call: Promise<unknown>): Promise<ApiError> => {
    const error = await call.catch((error: unknown) => error);
    assert.ok(error instanceof ApiError, String(error));
    return error;
  };
  const inventory = { nodeId, kind: 'inventory.refresh' };
  const hasty = await refused(client.commands.run({ ...inventory, idempotencyKey: 'k', notAfterSeconds: 5 }));
  assert.deepEqual([hasty.status, hasty.code], [400, 'INVALID_INPUT']);
  const problems = hasty.details['problems'] as { field: string; rule: string }[];
  assert.deepEqual(problems, [{ field: 'notAfterSeconds', rule: 'must be between 10 and 3600, but is 5' }]);
  const other = await refused(client.commands.run({ ...inventory, payload: {}, idempotencyKey: 'unheard' }));
  assert.deepEqual([other.status, other.code], [409, 'CONFLICT']);
  const gone = await refused(client.commands.get({ nodeId, commandId: 'cmd_00000000000000000000000000' }));
  assert.equal(gone.code, 'NOT_FOUND');
  const stranger = new Client({ url, token: 'bct_nobody' });
  assert.equal((await refused(stranger.commands.list({ nodeId }))).code, 'UNAUTHENTICATED');
  assert.equal((await refused(stranger.events.watch({ tenantId }).next())).status, 401);
});

test('what is repeated is what better-compute repeats', () => {
  assert.deepEqual(NOT_IDEMPOTENT.join(' '), setting('TEST_NOT_IDEMPOTENT'));
});
