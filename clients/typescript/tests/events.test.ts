/** Streams of events: frames, resuming, and the end. */

import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { type TestContext, test } from 'node:test';
import { ApiError, type CallError } from '@better-compute/client';
import { frameReader } from '#dist/frames.js';
import { failure, fake, refusal, stream } from './fake.js';

/** An event as the server sends it. */
function sent(id: string, topic = 'command.settled'): string {
  const event = { id, topic, tenantId: 'tenant_1', body: { text: `läst ${id}` }, at: '2026-01-01T00:00:00Z' };
  return `id: ${id}\nevent: ${topic}\ndata: ${JSON.stringify(event)}\n\n`;
}

/** Waits as short as they may be. */
function impatient(t: TestContext): void {
  t.mock.method(Math, 'random', () => 0);
}

test('how a stream is cut changes nothing about its frames', () => {
  const text = ': hi\r\nid: 1\r\n\r\nevent: a\rdata:x\rdata: y:z\rid\r\rdata\n\n: only a comment\n\nid: \0\ndata: \n\nretry: 1\n\n';
  const expected = [
    { event: 'message', id: '1' },
    { event: 'a', data: 'x\ny:z', id: '' },
    { event: 'message', data: '' },
    { event: 'message', data: '' },
  ];
  assert.deepEqual(frameReader()(text), expected);
  for (let first = 0; first <= text.length; first += 1) {
    for (let second = first; second <= text.length; second += 1) {
      const read = frameReader();
      const pieces = [text.slice(0, first), text.slice(first, second), text.slice(second)];
      assert.deepEqual(pieces.flatMap(read), expected, `${first}, ${second}`);
    }
  }
});

test('a stream that is cut goes on after the last event, without a gap or a double', async (t) => {
  impatient(t);
  const replies = [
    stream(`: watching\nid: 4\n\n${sent('5')}${sent('6')}id: 7\nevent: half`),
    failure('ECONNREFUSED'),
    stream(`id: 6\n\n${sent('7')}`),
  ];
  const { client, came } = fake(replies);
  const seen: string[] = [];
  const interrupted: CallError[] = [];
  const options = { onInterrupted: (error: CallError) => interrupted.push(error) };
  for await (const { id } of client.events.watch({ after: '4', nodeId: 'node_1' }, options)) {
    seen.push(id ?? '?');
    if (seen.length === 3) break;
  }
  assert.deepEqual(seen, ['5', '6', '7']);
  assert.equal(interrupted.length, 2);
  assert.deepEqual(came.map(({ headers }) => headers['last-event-id']), [undefined, '6', '6']);
  assert.equal(came[0]?.url.search, '?after=4&nodeId=node_1&tenantId=tenant_1');
  assert.ok(came[2]?.signal.aborted, 'whoever leaves the loop closes the connection');
});

test('a stream that is cut before its first event resumes where it began', async (t) => {
  impatient(t);
  const { client, came } = fake([stream(': watching\nid: 4\n\n'), stream(sent('5'))]);
  const first = await client.events.watch().next();
  assert.equal(first.value?.id, '5');
  assert.equal(came[1]?.headers['last-event-id'], '4');
});

test('a stream that is refused ends with the refusal', async () => {
  const { client, came } = fake([refusal(403, 'PERMISSION_DENIED')]);
  await assert.rejects(client.events.watch().next(), (error) => error instanceof ApiError && error.status === 403);
  assert.equal(came.length, 1);
});

test('a stream on which nothing comes is opened anew', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { client, came } = fake([stream('id: 4\n\n', true), stream(sent('5'))]);
  let reason = '';
  const next = client.events.watch({}, { onInterrupted: ({ message }) => (reason = message) }).next();
  const until = async (holds: () => boolean, stepMs: number): Promise<void> => {
    for (let turns = 0; !holds(); turns += 1) {
      assert.ok(turns < 1000, 'it takes too long');
      await turn();
      t.mock.timers.tick(stepMs);
    }
  };
  await until(() => came.length === 1, 0);
  await turn();
  t.mock.timers.tick(44_000);
  await turn();
  assert.equal(reason, '', 'it is silent for less than what counts');
  await until(() => reason !== '', 1_000);
  assert.match(reason, /nothing came for 45 s/);
  await until(() => came.length === 2, 1_000);
  assert.equal((await next).value?.id, '5');
});

test('events that a program does not know are passed on, and what is no event is not', async () => {
  const text = `event: x\ndata: {"no":"topic"}\n\ndata: no JSON\n\n${sent('5', 'from.the.future')}`;
  const progress = { commandId: 'cmd_1', nodeId: 'node_1', done: 1, unit: 'GPUs', message: '' };
  const { client } = fake([stream(`${text}event: command.progress\ndata: ${JSON.stringify(progress)}\n\n`, true)]);
  const events = client.events.watch();
  assert.equal((await events.next()).value?.topic, 'from.the.future');
  assert.deepEqual((await events.next()).value, { topic: 'command.progress', body: progress });
  await events.return();
});

test('who gives up watching gets their own reason', async () => {
  const { client } = fake([stream('id: 4\n\n', true)]);
  const control = new AbortController();
  const reason = new Error('enough');
  const onOpen = (): void => control.abort(reason);
  await assert.rejects(client.events.watch({}, { signal: control.signal, onOpen }).next(), reason);
});
