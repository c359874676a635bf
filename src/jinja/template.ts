import { isWrittenFloat } from '../files/exact-json.js';
import { Budget } from './budget.js';
import { JinjaError } from './errors.js';
import { Executor } from './execute.js';
import { fromPlain } from './from-plain.js';
import { setGlobals } from './globals.js';
import { Scope } from './scope.js';
import { parsed } from './statements.js';
import type { Statement } from './syntax.js';

export interface RenderOptions {
  /** Steps after which a template is stopped; an ordinary conversation takes some thousands. Default 20 million. */
  readonly steps?: number | undefined;
  /** The time that `strftime_now` writes. Default the clock's. */
  readonly now?: (() => Date) | undefined;
}

/**
 * A Jinja template, rendered as transformers renders chat templates: Python's values and texts, blocks trimmed and
 * stripped, `break`, `continue`, `generation`, `raise_exception` and `strftime_now`. Unsupported syntax is refused by
 * name.
 */
export class Template {
  private readonly body: readonly Statement[];

  /** @throws JinjaError for a text that is no template */
  constructor(source: string) {
    this.body = guarded(() => parsed(source));
  }

  /**
   * @param variables plain values, as in JSON; see `fromPlain`
   * @throws JinjaError for errors in Python as well, for unsupported features, and after too many steps
   */
  render(variables: Readonly<Record<string, unknown>>, options: RenderOptions = {}): string {
    const scope = new Scope();
    setGlobals(scope, options.now ?? (() => new Date()));
    for (const [name, value] of Object.entries(variables))
      if (value !== undefined) scope.set(name, fromPlain(value, isWrittenFloat(variables, name)));
    const executor = new Executor(new Budget(options.steps ?? 20_000_000));
    return guarded(() => executor.text(this.body, new Scope(scope)));
  }
}

/** Nesting that is too deep ends as an error of the template. */
function guarded<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof RangeError) throw new JinjaError(`it nests or grows too far (${error.message})`);
    throw error;
  }
}
