/**
 * What belongs to commands beside their methods: waiting for one's end, and reading what it writes.
 *
 * **Invariant:** only what `commands.get` answers ends a wait; an event merely makes it ask.
 */

import type { components } from './api.js';
import { CallError } from './errors.js';
import { type Progressed, watch } from './events.js';
import { linked, pause } from './pause.js';
import type { CallOptions, Transport } from './transport.js';

type Schemas = components['schemas'];

/** A command, and where it stands. */
export type Command = Schemas['Command'];

/** How much of a command's output was seen. */
export type OutputPlace = Schemas['OutputPlace'];

/** The states that a command keeps. */
const TERMINAL: readonly string[] = ['succeeded', 'failed', 'rejected', 'expired', 'cancelled'];

/** How long one request waits for new output, seconds: less than a call may take in all. */
const OUTPUT_WAIT_SECONDS = 20;

/** Whether a command is over. */
export function isOver(command: Pick<Command, 'state'>): boolean {
  return TERMINAL.includes(command.state);
}

/** How to wait. */
export interface WaitOptions extends CallOptions {
  /** Between two polls, milliseconds; 3000 by default. Events make it ask earlier. */
  pollMs?: number;
  /** How long nobody may answer before contact counts as lost, milliseconds; 60 000 by default. */
  lostAfterMs?: number;
  /** Told how far the run is. */
  onProgress?: (progress: Progressed['body']) => void;
}

/** Waits until a command is over; answers how it ended, which may be badly. */
export async function wait(
  transport: Transport,
  command: Schemas['CommandRef'],
  { signal, pollMs = 3_000, lostAfterMs = 60_000, onProgress }: WaitOptions,
): Promise<Command> {
  const { controller: stop, release } = linked(signal);
  let ask = (): void => {};
  const listen = async (): Promise<void> => {
    // What happened before the stream is open has no event, so it is asked once more then.
    const options = { signal: stop.signal, onOpen: () => ask() };
    for await (const said of watch(transport, command, options)) {
      if (said.id === undefined) onProgress?.(said.body);
      else ask();
    }
  };
  listen().catch((error: unknown) => {
    // Without events the polls go on; what `onProgress` throws is its caller's to see.
    if (!(error instanceof CallError)) stop.abort(error);
  });
  try {
    for (let heardMs = performance.now(); ; ) {
      const round = pause(pollMs, stop.signal);
      ask = round.end;
      try {
        const found = (await transport.call('commands.get', command, { signal: stop.signal })) as Command;
        if (isOver(found)) return found;
        heardMs = performance.now();
      } catch (error) {
        const isLost = performance.now() - heardMs > lostAfterMs;
        if (isLost || !(error instanceof CallError && error.isTransient)) throw error;
      }
      await round.done;
      stop.signal.throwIfAborted();
    }
  } finally {
    release();
    stop.abort();
  }
}

/** What a run wrote. */
export interface OutputChunk {
  /** Which run of the command; a later one has a higher number. */
  attempt: number;
  stream: 'stdout' | 'stderr';
  bytes: Uint8Array;
  /** How many bytes before these were lost on the way; the command's result keeps the account of all. */
  lostBytes: number;
  /** Where to go on after this: `after` of another call. */
  place: OutputPlace;
}

/** What of the output to read. */
export interface OutputOptions extends CallOptions {
  /** Only what comes after this place; by default all. */
  after?: OutputPlace;
  /** Whether to go on until the command is over, as by default, or to end with what there is. */
  follow?: boolean;
}

/** Reads what a command's programs write, as they write it. */
export async function* output(
  transport: Transport,
  command: Schemas['CommandRef'],
  { signal, after, follow = true }: OutputOptions,
): AsyncGenerator<OutputChunk, void, void> {
  let place: OutputPlace = after ?? { attempt: 0, stdout: 0, stderr: 0 };
  const waitSeconds = follow ? OUTPUT_WAIT_SECONDS : 0;
  const options = signal === undefined ? {} : { signal };
  for (;;) {
    const asked: Schemas['ReadOutput'] = { ...command, after: place, waitSeconds };
    const answer = (await transport.call('commands.output', asked, options)) as Schemas['CommandOutput'];
    for (const { attempt, stream, offset, bytes: encoded } of answer.pieces) {
      if (stream !== 'stdout' && stream !== 'stderr') continue;
      if (attempt !== place.attempt) place = { attempt, stdout: 0, stderr: 0 };
      const bytes = Uint8Array.from(atob(encoded), (character) => character.charCodeAt(0));
      const lostBytes = Math.max(0, offset - (place[stream] ?? 0));
      place = { ...place, [stream]: offset + bytes.length };
      yield { attempt, stream, bytes, lostBytes, place };
    }
    if (answer.isOver || (answer.pieces.length === 0 && !follow)) return;
  }
}
