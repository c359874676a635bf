import type { Html } from '../html.js';

/** A part of a page. */
export interface Section {
  /** Anchor on the page. */
  readonly id: string;
  readonly title: string;
  /** Undefined where the run has nothing for it. */
  readonly body: Html | undefined;
  /** Why there may be nothing, in one sentence. */
  readonly absent: string;
}
