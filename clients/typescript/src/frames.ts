/**
 * Server-sent events, from bytes to frames.
 *
 * **Invariant:** how the bytes were cut on the way changes nothing about the frames.
 */

/** One frame: what stands between two blank lines. */
export interface Frame {
  /** The event's name. */
  event: string;
  /** Where to resume after it; absent where the frame says none. */
  id?: string;
  /** Its data; absent where it has none, and then it is no event. */
  data?: string;
}

/** Reads frames. Give it text as it comes; it answers the frames that are whole now. */
export function frameReader(): (text: string) => Frame[] {
  let rest = '';
  let frame: Partial<Frame> = {};
  return (text) => {
    const frames: Frame[] = [];
    // A carriage return at the end may be half of a line's end.
    const lines = (rest + text).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? '';
    for (const line of lines) {
      if (line === '') {
        if (frame.data !== undefined || frame.id !== undefined) frames.push({ event: 'message', ...frame });
        frame = {};
        continue;
      }
      const [, name, value = ''] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
      if (name === 'data') frame.data = frame.data === undefined ? value : `${frame.data}\n${value}`;
      if (name === 'event') frame.event = value;
      // The standard has such an id ignored.
      if (name === 'id' && !value.includes('\0')) frame.id = value;
    }
    return frames;
  };
}
