/** Waiting for commands, and reading what they write. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError, Client, UnreachableError } from '@better-compute/client';
import { type Came, failure, fake, json, never, refusal, stream } from './fake.js';

const COMMAND = { nodeId: 'node_1', id: 'cmd_1' };

/** A client whose events and answers to `commands.get` are these. */
function waiting(events: (came: Came) => Response | Promise<Response>, answers: (Response | Error)[]) {
  const asked: Came[] = [];
  const answer = async (url: unknown, init: RequestInit = {}): Promise<Response> => {
    const came = { url: new URL(String(url)), signal: init.signal! } as Came;
    if (came.url.pathname === '/v1/events.watch') return events(came);
    asked.push(came);
    const next = answers.shift() ?? assert.fail('it asks too often');
    if (next instanceof Error) throw next;
    return next;
  };
  const target = { url: 'http://api.test', token: 'bct_1', tenantId: 'tenant_1', attempts: 1 };
  return { client: new Client({ ...target, fetch: answer as typeof fetch }), asked };
}

test('promise 20: a wait ends although every event is lost', async () => {
  const states = ['pending', 'running', 'succeeded'].map((state) => json({ state }));
  const { client, asked } = waiting(never, states);
  assert.equal((await client.commands.wait(COMMAND, { pollMs: 5 })).state, 'succeeded');
  assert.equal(asked.length, 3);
});

test('promise 20: a wait ends although events are refused', async () => {
  const { client } = waiting(() => refusal(403, 'PERMISSION_DENIED'), [json({ state: 'acked' }), json({ state: 'failed' })]);
  assert.equal((await client.commands.wait(COMMAND, { pollMs: 5 })).state, 'failed');
});

test('events make a wait ask at once, and the opening of their stream as well', async () => {
  let tell = (_: string): void => {};
  const events = ({ signal }: Came): Response => {
    const start = (controller: ReadableStreamDefaultController): void => {
      tell = (text) => controller.enqueue(new TextEncoder().encode(text));
      signal.addEventListener('abort', () => controller.error(signal.reason));
    };
    return new Response(new ReadableStream({ start }));
  };
  const { client, asked } = waiting(events, [json({ state: 'pending' }), json({ state: 'running' }), json({ state: 'succeeded' })]);
  // The polls are an hour apart: only what is told can end this.
  const progress: unknown[] = [];
  const waits = client.commands.wait(COMMAND, { pollMs: 3_600_000, onProgress: (body) => progress.push(body) });
  while (asked.length < 2) await new Promise(setImmediate);
  tell('event: command.progress\ndata: {"done":1}\n\n');
  tell('event: command.settled\nid: 5\ndata: {"id":"5","topic":"command.settled","body":{}}\n\n');
  assert.equal((await waits).state, 'succeeded');
  assert.deepEqual(progress, [{ done: 1 }]);
});

test('a wait outlasts a server that is away, but not one that refuses or stays away', async () => {
  const back = waiting(never, [failure('ECONNREFUSED'), failure('ECONNRESET'), json({ state: 'expired' })]);
  assert.equal((await back.client.commands.wait(COMMAND, { pollMs: 5 })).state, 'expired');
  const refused = waiting(never, [refusal(404, 'NOT_FOUND')]);
  await assert.rejects(refused.client.commands.wait(COMMAND), (error) => error instanceof ApiError && error.status === 404);
  const away = waiting(never, Array.from({ length: 100 }, () => failure('ECONNREFUSED')));
  const waits = away.client.commands.wait(COMMAND, { pollMs: 5, lostAfterMs: 20 });
  await assert.rejects(waits, (error) => error instanceof UnreachableError);
});

test('who gives up waiting gets their own reason', async () => {
  const { client } = waiting(never, [json({ state: 'running' })]);
  const control = new AbortController();
  const waits = client.commands.wait(COMMAND, { pollMs: 3_600_000, signal: control.signal });
  const reason = new Error('enough');
  control.abort(reason);
  await assert.rejects(waits, reason);
  await assert.rejects(client.commands.wait(COMMAND, { signal: AbortSignal.abort(reason) }), reason);
});

test('a wait ends with what its caller threw', async () => {
  const told = stream('event: command.progress\ndata: {"done":1}\n\n', true);
  const { client } = waiting(told, Array.from({ length: 9 }, () => json({ state: 'running' })));
  const mistake = new Error('a mistake');
  const onProgress = (): never => {
    throw mistake;
  };
  await assert.rejects(client.commands.wait(COMMAND, { pollMs: 3_600_000, onProgress }), mistake);
});

test('output is read piece after piece, and what was lost on the way is counted', async () => {
  const piece = (attempt: number, stream: string, offset: number, text: string) => {
    return { attempt, stream, offset, bytes: Buffer.from(text).toString('base64') };
  };
  const next = { attempt: 2, stdout: 0, stderr: 0 };
  const first = { pieces: [piece(1, 'stdout', 0, 'lä'), piece(1, 'stderr', 7, 'oh')], next, isOver: false };
  const { client, came } = fake([json(first), json({ pieces: [], next, isOver: false }), json({ pieces: [piece(2, 'stdout', 0, 'x')], next, isOver: true })]);
  const seen = [];
  for await (const { attempt, stream, bytes, lostBytes, place } of client.commands.output(COMMAND)) {
    seen.push([attempt, stream, new TextDecoder().decode(bytes), lostBytes, place]);
  }
  assert.deepEqual(seen, [
    [1, 'stdout', 'lä', 0, { attempt: 1, stdout: 3, stderr: 0 }],
    [1, 'stderr', 'oh', 7, { attempt: 1, stdout: 3, stderr: 9 }],
    [2, 'stdout', 'x', 0, { attempt: 2, stdout: 1, stderr: 0 }],
  ]);
  const asked = came.map(({ body }) => body?.['after']);
  assert.deepEqual(asked[1], { attempt: 1, stdout: 3, stderr: 9 });
  assert.equal(came[0]?.body?.['waitSeconds'], 20);
});

test('output that is not followed ends with what there is', async () => {
  const { client, came } = fake([json({ pieces: [], next: {}, isOver: false })]);
  const after = { attempt: 1, stdout: 3, stderr: 0 };
  for await (const _ of client.commands.output(COMMAND, { follow: false, after })) assert.fail('there is none');
  assert.deepEqual(came[0]?.body?.['after'], after);
  assert.equal(came[0]?.body?.['waitSeconds'], 0);
});
