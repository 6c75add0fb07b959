/** Stands between a client and its server, and cuts their connections when a test says so. */

import { type Socket, connect, createServer } from 'node:net';

export interface Proxy {
  url: string;
  /** Cuts what is open; answers how many connections that were. */
  cut: () => number;
  close: () => void;
}

export async function proxyTo(url: string): Promise<Proxy> {
  const { hostname, port } = new URL(url);
  const open = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(Number(port), hostname);
    open.add(near);
    near.on('close', () => open.delete(near) && far.destroy());
    far.on('close', () => near.destroy());
    for (const side of [near, far]) side.on('error', () => {});
    near.pipe(far).pipe(near);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('it listens on a port');
  const cut = (): number => {
    const count = open.size;
    for (const socket of open) socket.destroy();
    return count;
  };
  return { url: `http://127.0.0.1:${address.port}`, cut, close: () => server.close() };
}
