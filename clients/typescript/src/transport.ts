/**
 * From a method and its fields to its answer, over HTTP.
 *
 * **Invariant:** a call is repeated only where repeating it changes nothing: its method is idempotent, or the request never left
 * this machine.
 */

import { type CallError, ForeignError, UnreachableError, refused } from './errors.js';
import { backoffMs, linked, pause } from './pause.js';

/** Methods that make something new each time. All others can be repeated: `commands.run` by its key, the rest by nature. */
export const NOT_IDEMPOTENT: readonly string[] = [
  'tokens.create', 'nodes.createJoinToken', 'nodes.delete',
  'webhooks.create', 'webhooks.rotateSecret', 'webhooks.test', 'webhooks.delete',
];

/** Between attempts. */
const BACKOFF_MS = [200, 5_000] as const;

/** With which `fetch` of Node.js says that there never was a connection. A browser does not say. */
const NEVER_LEFT = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'UND_ERR_CONNECT_TIMEOUT', 'ENETUNREACH', 'EHOSTUNREACH'];

/** Where the API is, and as whom it is called. */
export interface ClientOptions {
  /** The API's base URL, `http://127.0.0.1:7070` for example. */
  url: string;
  /** `bct_…` */
  token: string;
  /** The tenant of calls that name none; by default the token's own. */
  tenantId?: string;
  /** In place of the global `fetch`. */
  fetch?: typeof fetch;
  /** Attempts of a call in all; 6 by default. */
  attempts?: number;
  /** How long one attempt may take, milliseconds; 30 000 by default. */
  timeoutMs?: number;
}

/** How one call is made. */
export interface CallOptions {
  /** Gives the call up. It may have happened nevertheless. */
  signal?: AbortSignal;
}

/** A connection to one API, as one caller. */
export class Transport {
  readonly url: string;
  readonly #options: ClientOptions;

  constructor(options: ClientOptions) {
    if (!/^https?:\/\//.test(options.url)) throw new TypeError('url: must begin with http:// or https://');
    if (!/^[\x21-\x7e]+$/.test(options.token)) throw new TypeError('token: must be the text of a token, bct_…');
    this.url = options.url.replace(/\/+$/, '');
    this.#options = options;
  }

  /** Calls a method with its fields; answers what it answers. */
  async call(method: string, fields: object, { signal }: CallOptions = {}): Promise<unknown> {
    const { attempts = 6, timeoutMs = 30_000 } = this.#options;
    const body = JSON.stringify(fields);
    const headers = { 'content-type': 'application/json' };
    // Once an attempt may have arrived, a later one that did not changes nothing about it.
    let hasArrived = false;
    for (let attempt = 0; ; attempt += 1) {
      const { controller, release } = linked(signal);
      const timer = setTimeout(() => controller.abort(new Error(`nothing came for ${timeoutMs} ms`)), timeoutMs);
      try {
        const request = { method: 'POST', headers, body, signal: controller.signal };
        const answer = await this.open(`/v1/${method}`, request);
        return this.#read(answer.status, await this.#text(answer));
      } catch (caught) {
        // Whoever gave it up gets their own reason.
        signal?.throwIfAborted();
        let error = caught as CallError;
        hasArrived ||= error.mayHaveHappened;
        if (error instanceof UnreachableError && error.mayHaveHappened !== hasArrived) {
          error = new UnreachableError(this.url, hasArrived, 'an earlier attempt may have arrived', { cause: error });
        }
        const isRepeatable = error.isTransient && (!hasArrived || !NOT_IDEMPOTENT.includes(method));
        if (!isRepeatable || attempt + 1 >= attempts) throw error;
      } finally {
        clearTimeout(timer);
        release();
      }
      await pause(backoffMs(attempt, ...BACKOFF_MS, Math.random()), signal).done;
      signal?.throwIfAborted();
    }
  }

  /** Sends one request; answers what came with a good status, its body unread. */
  async open(path: string, init: RequestInit & { headers: Record<string, string> }): Promise<Response> {
    const { fetch: send = fetch, token } = this.#options;
    const headers = { ...init.headers, authorization: `Bearer ${token}` };
    let answer: Response;
    try {
      // A token must not follow a redirect to elsewhere, and the API has none.
      answer = await send(`${this.url}${path}`, { ...init, headers, redirect: 'manual', cache: 'no-store' });
    } catch (error) {
      throw this.unreachable(error);
    }
    if (!answer.ok) throw refused(this.url, answer.status, await this.#text(answer));
    return answer;
  }

  unreachable(error: unknown): UnreachableError {
    const { message = 'it failed', cause } = error as { message?: string; cause?: { code?: string; message?: string } };
    const hasLeft = !NEVER_LEFT.includes(cause?.code ?? '');
    // `fetch` itself only says that it failed; its cause says why.
    return new UnreachableError(this.url, hasLeft, cause?.message || cause?.code || message, { cause: error });
  }

  async #text(answer: Response): Promise<string> {
    try {
      return await answer.text();
    } catch (error) {
      throw this.unreachable(error);
    }
  }

  #read(status: number, text: string): unknown {
    try {
      // No content reads as undefined.
      return text === '' ? undefined : JSON.parse(text);
    } catch {
      throw new ForeignError(this.url, status, 'it is no JSON');
    }
  }
}
