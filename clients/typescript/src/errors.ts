/**
 * Why a call gave no answer.
 *
 * **Invariant:** a call whose effect is not known is never told apart only by its text: `mayHaveHappened`.
 */

import type { components } from './api.js';

/** The stable codes; a server that is newer may have more. */
export type Code = components['schemas']['Code'] | (string & {});

/** A call that failed. */
export abstract class CallError extends Error {
  /** Whether the same call may succeed a moment later. */
  abstract readonly isTransient: boolean;
  /** Whether the server may have done what it was asked, although it did not say so. */
  abstract readonly mayHaveHappened: boolean;
}

/** The server refused it. */
export class ApiError extends CallError {
  override readonly name = 'ApiError';

  constructor(
    /** The HTTP status. */
    readonly status: number,
    /** What programs decide by. */
    readonly code: Code,
    message: string,
    /** Particulars, by code: `{ problems: [{ field, rule }] }`, `{ reason, … }`. */
    readonly details: Readonly<Record<string, unknown>>,
  ) {
    super(message);
  }

  get isTransient(): boolean {
    return this.code === 'UNAVAILABLE';
  }

  get mayHaveHappened(): boolean {
    return this.code === 'UNAVAILABLE' || this.code === 'INTERNAL';
  }
}

/** There was no answer, or it was cut off. */
export class UnreachableError extends CallError {
  override readonly name = 'UnreachableError';
  readonly isTransient = true;

  constructor(
    readonly url: string,
    /** Whether the request, or an earlier attempt of it, may have reached the server. */
    readonly mayHaveHappened: boolean,
    why: string,
    options?: ErrorOptions,
  ) {
    super(`no answer from ${url}: ${why}`, options);
  }
}

/** The answer is none of this API: something else stands at that URL, or in between. */
export class ForeignError extends CallError {
  override readonly name = 'ForeignError';

  constructor(
    readonly url: string,
    /** The HTTP status. */
    readonly status: number,
    why: string,
  ) {
    super(`${url} does not answer as the API does (HTTP ${status}): ${why}`);
  }

  /** What stands in front of a server that is away says these. */
  get isTransient(): boolean {
    return this.status >= 502 && this.status <= 504;
  }

  get mayHaveHappened(): boolean {
    return this.status < 400 || this.status >= 500;
  }
}

/** What a failed call answers, read: an error of the API where it is one. */
export function refused(url: string, status: number, body: string): ApiError | ForeignError {
  try {
    const { code, message, details } = JSON.parse(body).error;
    if (typeof code === 'string' && typeof message === 'string') {
      return new ApiError(status, code, message, details ?? {});
    }
  } catch {
    // It is said below.
  }
  return new ForeignError(url, status, 'it is no error of the API');
}
