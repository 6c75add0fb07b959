/**
 * Waiting.
 *
 * **Invariant:** a wait is bounded on both sides, and leaves no timer behind.
 */

/** Exponential waits with full jitter between two bounds. `random` lies in 0..1; attempt 0 is the first repetition. */
export function backoffMs(attempt: number, minMs: number, maxMs: number, random: number): number {
  const ceilingMs = Math.min(maxMs, minMs * 2 ** (attempt + 1));
  return minMs + (ceilingMs - minMs) * random;
}

/** Is over after so long, when it is ended, or when the signal aborts. It never fails. */
export function pause(ms: number, signal?: AbortSignal): { done: Promise<void>; end: () => void } {
  let end = (): void => {};
  const done = new Promise<void>((resolve) => {
    end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(() => end(), ms);
    signal?.addEventListener('abort', end, { once: true });
    if (signal?.aborted) end();
  });
  return { done, end };
}

/** A controller that aborts with a signal as well, until it is released: a signal that lives long would keep it otherwise. */
export function linked(signal?: AbortSignal): { controller: AbortController; release: () => void } {
  const controller = new AbortController();
  const abort = (): void => controller.abort(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort, { once: true });
  return { controller, release: () => signal?.removeEventListener('abort', abort) };
}
