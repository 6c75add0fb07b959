// An MCP client that a test drives: the SDK in TypeScript, which shares no code with the server.
//
//   node client.mjs stdio PROGRAM [WORD…]     starts the server and speaks over its standard input and output
//   node client.mjs http URL [TOKEN]          speaks streamable HTTP
//
// Each line of standard input is a request, {"op": …}, and is answered with one line: {"ok": …}, or {"error": {code, message}} for
// an error of the protocol. The first line answers the connection itself.

import { createInterface } from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [how, where, ...rest] = process.argv.slice(2);

function transport() {
  if (how === 'stdio') {
    return new StdioClientTransport({ command: where, args: rest, env: process.env, stderr: 'inherit' });
  }
  const headers = rest[0] ? { Authorization: `Bearer ${rest[0]}` } : {};
  return new StreamableHTTPClientTransport(new URL(where), { requestInit: { headers } });
}

const say = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);
const error = (why) => ({ error: { code: why.code ?? null, message: String(why.message ?? why) } });

// Calls a tool; `abortAfter` goes away after so many remarks on its progress.
async function call({ name, input, progress, abortAfter }) {
  const remarks = [];
  const away = new AbortController();
  const onprogress = (remark) => {
    remarks.push(remark);
    if (remarks.length === abortAfter) away.abort('the test goes away');
  };
  const options = { signal: away.signal, timeout: 120_000, ...(progress ? { onprogress } : {}) };
  try {
    const result = await client.callTool({ name, arguments: input }, undefined, options);
    return { ok: { result, remarks } };
  } catch (why) {
    if (away.signal.aborted) return { ok: { aborted: true, remarks } };
    throw why;
  }
}

const client = new Client({ name: 'better-compute-tests', version: '1.0.0' });
try {
  await client.connect(transport());
} catch (why) {
  say(error(why));
  process.exit(1);
}
say({
  ok: {
    server: client.getServerVersion(),
    capabilities: client.getServerCapabilities(),
    instructions: client.getInstructions(),
  },
});

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  try {
    if (request.op === 'list') {
      // From here on the SDK holds each result against the tool's output schema.
      say({ ok: (await client.listTools()).tools });
    } else if (request.op === 'call') {
      say(await call(request));
    } else {
      throw new Error(`no op is called ${request.op}`);
    }
  } catch (why) {
    say(error(why));
  }
}
await client.close();
