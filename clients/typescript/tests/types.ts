/** What the types refuse, and what they do not: this is compiled, not run, and an error that does not come fails as well. */

import type { Client, Command } from '@better-compute/client';

export async function typed(client: Client): Promise<void> {
  const run = { nodeId: 'node_1', kind: 'diag.nvml', idempotencyKey: 'k' };
  // @ts-expect-error a field is missing
  await client.commands.run({ kind: 'diag.nvml', idempotencyKey: 'k' });
  // @ts-expect-error a field that the method does not have
  await client.commands.run({ ...run, notAfter: 300 });
  // @ts-expect-error a field of another type
  await client.commands.run({ ...run, notAfterSeconds: '300' });
  // @ts-expect-error a method that needs fields
  await client.commands.get();
  // @ts-expect-error a method that there is not
  await client.commands.start(run);
  // @ts-expect-error a list without pages
  client.tokens.listAll();

  const command: Command = await client.commands.run({ ...run, tenantId: 'tenant_1' });
  const batchId: string | undefined = command.batchId;
  await client.commands.list({ nodeId: command.nodeId, ...(batchId === undefined ? {} : { limit: 20 }) });
  await client.nodes.list();
  await client.nodes.label({ nodeId: command.nodeId, labels: { rack: 'r7', gone: null } });
  const grants: { permission: string }[] = (await client.tokens.whoami()).grants;
  for await (const node of client.nodes.listAll({ labels: { rack: 'r7' } })) grants.push({ permission: node.id });
}
