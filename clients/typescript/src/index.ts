/** The client of better-compute's HTTP API. */

export type { components, paths } from './api.js';
export { type Answer, Client, type Fields, type Method } from './client.js';
export {
  type Command,
  type OutputChunk,
  type OutputOptions,
  type OutputPlace,
  type WaitOptions,
  isOver,
} from './commands.js';
export { ApiError, CallError, type Code, ForeignError, UnreachableError } from './errors.js';
export type { Happened, Progressed, WatchOptions } from './events.js';
export { type CallOptions, type ClientOptions, NOT_IDEMPOTENT } from './transport.js';
