import { ApiError, type Client } from '@better-compute/client';

export async function refreshInventory(client: Client, tenantId: string, nodeId: string) {
  // #region run
  const command = await client.commands.run({
    tenantId,
    nodeId,
    kind: 'inventory.refresh',
    payload: { sections: ['gpus'], rescan: true },
    idempotencyKey: 'refresh-after-gpu-swap-0412',
    notAfterSeconds: 300,
  });
  // { id: 'cmd_…', seq: 42, state: 'pending', notAfter: …, retrySafe: true, … }
  // #endregion
  return command;
}

export async function rebootInBatch(client: Client, tenantId: string, nodeId: string) {
  // #region batch
  const batch = await client.commandBatches.create({
    tenantId,
    reason: 'Reboot node_0412 after the kernel update',
    scope: [{ subject: nodeId, kind: 'node.reboot' }], // payloadSha256 (hex) would bind one exact payload
    idempotencyKey: 'reboot-0412-batch',
  });
  await client.commands.run({ tenantId, nodeId, kind: 'node.reboot', idempotencyKey: 'reboot-0412', batchId: batch.batchId });
  // pending until the batch is approved: better-compute batch approve --tenant … --batch batch_… --key approver.pem
  // #endregion
  return batch;
}

export async function callOff(client: Client, tenantId: string, nodeId: string, commandId: string) {
  // #region cancel
  const command = await client.commands.cancel({ tenantId, nodeId, commandId });
  // #endregion
  return command;
}

export async function listFailed(client: Client, tenantId: string, nodeId: string) {
  // #region list
  const { items } = await client.commands.list({ tenantId, nodeId, state: 'failed', limit: 20 });
  for (const command of items) console.log(command.seq, command.kind, command.reason);
  // #endregion
  return items;
}

export async function countByState(client: Client, nodeId: string) {
  const counts = new Map<string, number>();
  // #region all
  for await (const command of client.commands.listAll({ nodeId })) {
    counts.set(command.state, (counts.get(command.state) ?? 0) + 1);
  }
  // #endregion
  return counts;
}

export async function whyRefused(client: Client, nodeId: string) {
  let reason: unknown;
  // #region errors
  try {
    await client.commands.run({ nodeId, kind: 'node.reboot', idempotencyKey: 'reboot-0413' });
  } catch (error) {
    if (!(error instanceof ApiError && error.code === 'INVALID_STATE')) throw error;
    reason = error.details['reason']; // 'batch-required'
  }
  // #endregion
  return reason;
}
