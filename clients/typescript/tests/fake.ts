/** A server that says what a test has it say: one answer for each request, in order. */

import { Client, type ClientOptions } from '@better-compute/client';

/** A request that came. */
export interface Came {
  url: URL;
  headers: Record<string, string>;
  body: Record<string, unknown> | undefined;
  signal: AbortSignal;
}

type Reply = Response | Error | ((came: Came) => Response | Promise<Response>);

export function fake(replies: Reply[], options: Partial<ClientOptions> = {}) {
  const came: Came[] = [];
  const answer = async (url: unknown, init: RequestInit = {}): Promise<Response> => {
    const body = typeof init.body === 'string' ? JSON.parse(init.body) : undefined;
    const one = { url: new URL(String(url)), headers: init.headers as Record<string, string>, body, signal: init.signal! };
    came.push(one);
    const reply = replies.shift();
    if (reply === undefined) throw new Error('the test expects no further request');
    if (reply instanceof Error) throw reply;
    return typeof reply === 'function' ? reply(one) : reply;
  };
  const target = { url: 'http://api.test', token: 'bct_1', tenantId: 'tenant_1', attempts: 3 };
  const fetch = answer as typeof globalThis.fetch;
  return { client: new Client({ ...target, ...options, fetch }), fetch, came };
}

export function json(value: unknown, status = 200): Response {
  return new Response(JSON.stringify(value), { status });
}

export function refusal(status: number, code: string, details?: unknown): Response {
  return json({ error: { code, message: 'because', details } }, status);
}

/** What `fetch` throws. */
export function failure(code: string): Error {
  return new TypeError('fetch failed', { cause: Object.assign(new Error(`${code} of the test`), { code }) });
}

/** Never answers, until it is given up. */
export function never({ signal }: Came): Promise<Response> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason));
  });
}

/** A stream of this text, which then ends, or stays open until it is given up. */
export function stream(text: string, staysOpen = false) {
  return ({ signal }: Came): Response => {
    const body = new ReadableStream({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(text));
        if (!staysOpen) controller.close();
        else signal.addEventListener('abort', () => controller.error(signal.reason));
      },
    });
    return new Response(body);
  };
}
