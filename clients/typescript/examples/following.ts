import type { Client, Command, Happened } from '@better-compute/client';

export async function runToItsEnd(client: Client, nodeId: string) {
  // #region wait
  const queued = await client.commands.run({ nodeId, kind: 'inventory.refresh', idempotencyKey: 'look-again' });
  const command = await client.commands.wait(queued, { signal: AbortSignal.timeout(60_000) });
  console.log(command.state, command.result);
  // #endregion
  return command;
}

export async function readOutput(client: Client, command: Command, write: (text: string) => void) {
  // #region output
  const decoder = new TextDecoder();
  for await (const { stream, bytes } of client.commands.output(command)) {
    if (stream === 'stdout') write(decoder.decode(bytes, { stream: true }));
  }
  // #endregion
}

export async function followSettled(client: Client, lastSeen: string, handle: (event: Happened) => Promise<boolean>) {
  // #region events
  for await (const event of client.events.watch({ after: lastSeen })) {
    if (event.topic === 'command.settled' && event.id !== undefined) {
      const isEnough = await handle(event); // keep event.id with what you made of it: it is the next `after`
      if (isEnough) break;
    }
  }
  // #endregion
}
