/**
 * `events.watch`: a stream that comes back after it was cut, where the last event left off.
 *
 * **Invariant:** every event that was asked for is said once and in order, however often the connection is lost.
 */

import type { paths, components } from './api.js';
import { CallError, UnreachableError } from './errors.js';
import { type Frame, frameReader } from './frames.js';
import { backoffMs, linked, pause } from './pause.js';
import type { CallOptions, Transport } from './transport.js';

/** Between connections. */
const BACKOFF_MS = [250, 10_000] as const;

/** A stream on which nothing comes for so long is cut: the server says something every 15 s. */
const SILENCE_MS = 45_000;

/** The topic of events that say how far a run is. */
const PROGRESS = 'command.progress';

/** What happened, and is on record. */
export type Happened = components['schemas']['Event'];

/** How far a run is. It is not on record, and has no id. */
export interface Progressed {
  id?: never;
  topic: typeof PROGRESS;
  body: components['schemas']['Progress'];
}

/** What to watch. */
export type WatchQuery = paths['/v1/events.watch']['get']['parameters']['query'];

/** How to watch. */
export interface WatchOptions extends CallOptions {
  /** Told when the stream was cut and is being opened again. */
  onInterrupted?: (error: CallError) => void;
  /** Told when the stream is open: what happens from now on is said. */
  onOpen?: () => void;
}

/** Watches. It ends only when the server refuses it, when the signal aborts, or when the reader leaves the loop. */
export async function* watch(
  transport: Transport,
  query: WatchQuery,
  options: WatchOptions = {},
): AsyncGenerator<Happened | Progressed, never, void> {
  const { signal } = options;
  let last: string | undefined;
  for (let attempt = 0; ; attempt += 1) {
    const before = last;
    let error: unknown;
    try {
      for await (const frame of connect(transport, query, last, options)) {
        last = frame.id ?? last;
        const said = read(frame);
        if (said !== undefined) yield said;
      }
      error = new UnreachableError(transport.url, true, 'the stream of events ended');
    } catch (caught) {
      error = caught;
    }
    signal?.throwIfAborted();
    if (!(error instanceof CallError && error.isTransient)) throw error;
    if (last !== before) attempt = 0;
    options.onInterrupted?.(error);
    await pause(backoffMs(attempt, ...BACKOFF_MS, Math.random()), signal).done;
    signal?.throwIfAborted();
  }
}

/** The frames of one connection. */
async function* connect(
  transport: Transport,
  query: WatchQuery,
  last: string | undefined,
  { signal, onOpen }: WatchOptions,
): AsyncGenerator<Frame, void, void> {
  const { controller: connection, release } = linked(signal);
  // Only while something is waited for: a slow reader does not make the server silent.
  const patiently = async <T>(wait: Promise<T>): Promise<T> => {
    const timer = setTimeout(() => connection.abort(new Error(`nothing came for ${SILENCE_MS / 1000} s`)), SILENCE_MS);
    try {
      return await wait;
    } catch (error) {
      throw error instanceof CallError ? error : transport.unreachable(error);
    } finally {
      clearTimeout(timer);
    }
  };
  const fields = Object.entries(query).filter(([, value]) => value !== undefined) as [string, string][];
  const headers: Record<string, string> = { accept: 'text/event-stream' };
  if (last !== undefined) headers['last-event-id'] = last;
  const path = `/v1/events.watch?${new URLSearchParams(fields)}`;
  try {
    const answer = await patiently(transport.open(path, { headers, signal: connection.signal }));
    onOpen?.();
    if (answer.body === null) return;
    const body = answer.body.getReader();
    const decoder = new TextDecoder();
    const frames = frameReader();
    for (;;) {
      const chunk = await patiently(body.read());
      if (chunk.done) return;
      yield* frames(decoder.decode(chunk.value, { stream: true }));
    }
  } finally {
    release();
    connection.abort();
  }
}

/** Reads one event. What is none is left out, so that a newer server can say more. */
function read({ event, data }: Frame): Happened | Progressed | undefined {
  if (data === undefined) return undefined;
  try {
    const body = JSON.parse(data);
    if (event === PROGRESS) return { topic: PROGRESS, body };
    return typeof body?.topic === 'string' ? body : undefined;
  } catch {
    return undefined;
  }
}
