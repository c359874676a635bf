/** Server-sent events with the changes of a page since it was sent, until the reader goes away. */
import type { ServerResponse } from 'node:http';
import type { PageOptions } from '../report/page.js';

const QUIET_MS = 15_000;

/** @param made the page as it is now; undefined where it is gone */
export async function follow(
  response: ServerResponse,
  made: () => Promise<PageOptions | undefined>,
  interval: number,
): Promise<void> {
  response.writeHead(200, {
    'content-type': 'text/event-stream',
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  });
  response.write('retry: 3000\n\n');
  let sent = parts(await made());
  let lastWrite = Date.now();
  let timer: NodeJS.Timeout | undefined;
  const look = async () => {
    const page = await made().catch(() => undefined);
    if (response.destroyed) return;
    const now = parts(page);
    const changed = Object.fromEntries(
      Object.entries(now.texts).filter(([id, text]) => sent.texts[id] !== text),
    );
    const hasNewPlots = now.plots !== sent.plots;
    if (page && (Object.keys(changed).length > 0 || hasNewPlots)) {
      const { head, ...sections } = changed;
      const plots = hasNewPlots ? JSON.parse(now.plots) : [];
      response.write(`event: update\ndata: ${JSON.stringify({ head, sections, plots })}\n\n`);
      sent = now;
      lastWrite = Date.now();
    } else if (Date.now() - lastWrite > QUIET_MS) {
      response.write(': still here\n\n');
      lastWrite = Date.now();
    }
    timer = setTimeout(look, interval);
  };
  timer = setTimeout(look, interval);
  response.on('close', () => clearTimeout(timer));
}

function parts(page: PageOptions | undefined) {
  const sections = page?.sections.flatMap(({ id, body }) => (body ? [[id, body.text] as const] : [])) ?? [];
  const { plots = [] } = (page?.data ?? {}) as { readonly plots?: unknown };
  const texts: Record<string, string> = {
    ...Object.fromEntries(sections),
    ...(page ? { head: page.head.text } : {}),
  };
  return { texts, plots: JSON.stringify(plots) };
}
