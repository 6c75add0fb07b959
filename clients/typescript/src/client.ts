/**
 * The client: `client.<noun>.<verb>(fields)` for each method of the API, and what is more convenient made of several.
 *
 * **Invariant:** which methods there are, what they take and what they answer is the API's own description; none is listed here.
 */

import type { paths } from './api.js';
import * as commands from './commands.js';
import { type Happened, type Progressed, type WatchOptions, type WatchQuery, watch } from './events.js';
import { METHODS } from './methods.js';
import { type CallOptions, type ClientOptions, Transport } from './transport.js';

/** A method's name, `commands.run` for example. */
export type Method = keyof typeof METHODS;
type Operation<M extends Method> = paths[`/v1/${M}`]['post'];
type Taken<M extends Method> =
  Operation<M> extends { requestBody: { content: { 'application/json': infer Body } } } ? Body : object;

/** A tenant that is the client's need not be named. */
type OwnTenant<Body> = Body extends { tenantId: string } ? Omit<Body, 'tenantId'> & { tenantId?: string } : Body;

/** What a method takes. */
export type Fields<M extends Method> = OwnTenant<Taken<M>>;
/** What a method answers. */
export type Answer<M extends Method> =
  Operation<M> extends { responses: { 200: { content: { 'application/json': infer Body } } } } ? Body : undefined;

type Noun = Method extends `${infer N}.${string}` ? N : never;
type Verb<N extends Noun> = Method extends infer M ? (M extends `${N}.${infer V}` ? V : never) : never;
type Asked<F> = {} extends F ? [fields?: F, options?: CallOptions] : [fields: F, options?: CallOptions];
type Call<M> = M extends Method ? (...asked: Asked<Fields<M>>) => Promise<Answer<M>> : never;
type Paged<N extends Noun> = `${N}.list` extends infer M extends Method
  ? (typeof METHODS)[M] extends { pages: true }
    ? { listAll(...asked: Asked<Omit<Fields<M>, 'cursor'>>): AsyncGenerator<Item<Answer<M>>, void, void> }
    : unknown
  : unknown;
type Item<Page> = Page extends { items: (infer I)[] } ? I : never;
type Face = { [N in Noun]: { [V in Verb<N>]: Call<`${N}.${V}`> } & Paged<N> };

/** A command by its ids, or as a method answered it. */
export type Which = { tenantId?: string; nodeId: string } & ({ commandId: string } | { id: string });

/** What commands have beside their methods. */
export interface CommandsExtra {
  /** Waits until a command is over, however it ends. A command that waits for approval is waited for as well. */
  wait(which: Which, options?: commands.WaitOptions): Promise<commands.Command>;
  /** What its programs write, as they write it. `client.call('commands.output', …)` is the method behind it. */
  output(which: Which, options?: commands.OutputOptions): AsyncGenerator<commands.OutputChunk, void, void>;
}

/** Events. */
export interface Events {
  /** What happens, from now on or after an event's id (`after: '0'`: from the beginning). It resumes by itself. */
  watch(query?: OwnTenant<WatchQuery>, options?: WatchOptions): AsyncGenerator<Happened | Progressed, void, void>;
}

// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging -- the constructor makes all of it
export interface Client extends Omit<Face, 'commands'> {
  readonly commands: Omit<Face['commands'], 'output'> & CommandsExtra;
  readonly events: Events;
}

/** A client of one API, as one caller. */
export class Client {
  readonly #transport: Transport;
  #tenant: Promise<string> | undefined;

  constructor(options: ClientOptions) {
    this.#transport = new Transport(options);
    if (options.tenantId !== undefined) this.#tenant = Promise.resolve(options.tenantId);
    const nouns: Record<string, Record<string, unknown>> = {};
    for (const method of Object.keys(METHODS) as Method[]) {
      const [noun = '', verb = ''] = method.split('.');
      nouns[noun] ??= {};
      const call = (fields?: object, options?: CallOptions) => this.#call(method, fields ?? {}, options);
      nouns[noun][verb] = call;
      if (METHODS[method].pages) nouns[noun]['listAll'] = (fields?: object, options?: CallOptions) => all(call, fields, options);
    }
    Object.assign(nouns['commands'] ?? {}, this.#commands());
    nouns['events'] = { watch: this.#watch.bind(this) };
    Object.assign(this, nouns);
  }

  /** Calls a method by its name. */
  call<M extends Method>(method: M, ...[fields, options]: Asked<Fields<M>>): Promise<Answer<M>> {
    return this.#call(method, fields ?? {}, options) as Promise<Answer<M>>;
  }

  async #call(method: Method, fields: object, options?: CallOptions): Promise<unknown> {
    return this.#transport.call(method, METHODS[method].tenant ? await this.#owned(fields) : fields, options);
  }

  /** The fields with a tenant. */
  async #owned<F extends object>(fields: F): Promise<F & { tenantId: string }> {
    const { tenantId } = fields as { tenantId?: string };
    if (tenantId !== undefined) return { ...fields, tenantId };
    this.#tenant ??= this.call('tokens.whoami').then((caller) => caller.tenantId);
    try {
      return { ...fields, tenantId: await this.#tenant };
    } catch (error) {
      // The next call asks again.
      this.#tenant = undefined;
      throw error;
    }
  }

  #commands(): CommandsExtra {
    const reference = async (which: Which) => {
      const commandId = 'commandId' in which ? which.commandId : which.id;
      const { tenantId, nodeId } = await this.#owned(which);
      return { tenantId, nodeId, commandId };
    };
    const transport = this.#transport;
    return {
      wait: async (which, options = {}) => commands.wait(transport, await reference(which), options),
      async *output(which, options = {}) {
        yield* commands.output(transport, await reference(which), options);
      },
    };
  }

  async *#watch(query: OwnTenant<WatchQuery> = {}, options?: WatchOptions) {
    yield* watch(this.#transport, await this.#owned(query), options);
  }
}

/** All items of a list, page after page; `limit` is how many one page has. */
async function* all(
  list: (fields: object, options?: CallOptions) => Promise<unknown>,
  fields: object = {},
  options?: CallOptions,
): AsyncGenerator<unknown, void, void> {
  let cursor: string | undefined;
  do {
    const page = (await list({ limit: 200, ...fields, cursor }, options)) as { items: unknown[]; nextCursor?: string };
    yield* page.items;
    cursor = page.nextCursor;
  } while (cursor !== undefined);
}
