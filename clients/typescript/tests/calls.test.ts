/** Calls: what is repeated and what is not, and how failures are told. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError, CallError, Client, ForeignError, UnreachableError } from '@better-compute/client';
import { failure, fake, json, never, refusal } from './fake.js';

const RUN = { nodeId: 'node_1', kind: 'diag.nvml', idempotencyKey: 'k' };
const TOKEN = { identity: 'ci', label: 'l' };

async function fails(call: Promise<unknown>): Promise<CallError> {
  const error = await call.then(
    () => assert.fail('it did not fail'),
    (error: unknown) => error,
  );
  assert.ok(error instanceof CallError, String(error));
  return error;
}

test('a call carries the token, the tenant of the client, and its fields', async () => {
  const { client, came } = fake([json({ id: 'cmd_1' }), json({ id: 'cmd_2' })]);
  assert.equal((await client.commands.run(RUN)).id, 'cmd_1');
  await client.commands.run({ ...RUN, tenantId: 'tenant_2' });
  assert.equal(came[0]?.url.href, 'http://api.test/v1/commands.run');
  assert.equal(came[0]?.headers['authorization'], 'Bearer bct_1');
  assert.deepEqual(came[0]?.body, { ...RUN, tenantId: 'tenant_1' });
  assert.equal(came[1]?.body?.['tenantId'], 'tenant_2');
});

test('without a tenant the token is asked for its own, once, and again if that failed', async () => {
  const replies = [refusal(401, 'UNAUTHENTICATED'), json({ tenantId: 'tenant_9' }), json({}), json({})];
  const { fetch, came } = fake(replies);
  const bare = new Client({ url: 'http://api.test/', token: 'bct_1', fetch });
  assert.ok((await fails(bare.commands.run(RUN))) instanceof ApiError);
  await bare.commands.run(RUN);
  await bare.commands.run(RUN);
  const methods = came.map(({ url }) => url.pathname.slice(4));
  assert.deepEqual(methods, ['tokens.whoami', 'tokens.whoami', 'commands.run', 'commands.run']);
  assert.deepEqual(came[0]?.body, {});
  assert.equal(came[3]?.body?.['tenantId'], 'tenant_9');
});

test('a run is repeated, by its key, while the server is away', async () => {
  const html = new Response('<html>', { status: 502 });
  const { client, came } = fake([refusal(503, 'UNAVAILABLE'), html, json({ id: 'cmd_1' })]);
  assert.equal((await client.commands.run(RUN)).id, 'cmd_1');
  assert.equal(came.length, 3);
  assert.deepEqual(came[2]?.body, came[0]?.body);
});

test('it is not repeated more often than the client may', async () => {
  const { client, came } = fake([failure('ECONNRESET'), failure('ECONNRESET'), failure('ECONNREFUSED')]);
  const error = await fails(client.commands.run(RUN));
  assert.ok(error instanceof UnreachableError && error.mayHaveHappened, 'the first one may have arrived');
  assert.equal(came.length, 3);
});

test('what makes something new each time is repeated only if it never left', async () => {
  const lost = fake([failure('ECONNREFUSED'), failure('ECONNRESET')]);
  const error = await fails(lost.client.tokens.create(TOKEN));
  assert.ok(error.mayHaveHappened && error.message.includes('ECONNRESET'), error.message);
  assert.equal(lost.came.length, 2);
  const away = fake([failure('ECONNREFUSED'), failure('ENOTFOUND'), json({ token: 'bct_2', id: '1' })]);
  assert.equal((await away.client.tokens.create(TOKEN)).token, 'bct_2');
  const refused = fake([failure('ECONNREFUSED'), failure('ECONNREFUSED'), failure('ECONNREFUSED')]);
  assert.equal((await fails(refused.client.tokens.create(TOKEN))).mayHaveHappened, false);
});

test('a refusal is told with code, status and particulars, and is not repeated', async () => {
  const { client, came } = fake([refusal(409, 'INVALID_STATE', { reason: 'batch-required' })]);
  const error = await fails(client.commands.run(RUN));
  assert.ok(error instanceof ApiError);
  assert.deepEqual([error.status, error.code, error.message], [409, 'INVALID_STATE', 'because']);
  assert.deepEqual(error.details, { reason: 'batch-required' });
  assert.equal(came.length, 1);
});

test('what is no answer of the API is told as such', async () => {
  const redirect = new Response(null, { status: 302, headers: { location: 'http://elsewhere.test' } });
  const foreign = [new Response('<html>', { status: 404 }), new Response('<html>'), redirect];
  for (const [index, reply] of foreign.entries()) {
    const { client, came } = fake([reply]);
    const error = await fails(client.commands.run(RUN));
    assert.ok(error instanceof ForeignError, String(index));
    assert.equal(came.length, 1);
  }
});

test('an attempt that takes too long is given up and repeated', async () => {
  const { client, came } = fake([never, json({ id: 'cmd_1' })], { timeoutMs: 20 });
  assert.equal((await client.commands.run(RUN)).id, 'cmd_1');
  assert.equal(came.length, 2);
});

test('who gives a call up gets their own reason, and nothing is repeated', async () => {
  const { client, came } = fake([never]);
  const control = new AbortController();
  const call = client.commands.run(RUN, { signal: control.signal });
  const reason = new Error('enough');
  control.abort(reason);
  await assert.rejects(call, reason);
  assert.ok(came.length <= 1);
});

test('a list is read page after page', async () => {
  const pages = [json({ items: [1, 2], nextCursor: 'c' }), json({ items: [3] })];
  const { client, came } = fake(pages);
  const items = [];
  for await (const item of client.commands.listAll({ nodeId: 'node_1', limit: 2 })) items.push(item);
  assert.deepEqual(items, [1, 2, 3]);
  assert.deepEqual(came.map(({ body }) => body?.['cursor']), [undefined, 'c']);
});

test('a client that cannot work is refused at once', () => {
  assert.throws(() => new Client({ url: 'api.test', token: 'bct_1' }), /url: must begin/);
  assert.throws(() => new Client({ url: 'http://api.test', token: 'bct_1\n' }), /token: must be/);
});
