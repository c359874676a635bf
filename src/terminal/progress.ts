// Progress of a run: one line that is updated on a terminal, or occasional lines in a pipe.
import pc from 'picocolors';
import { type ProgressStream, progressStream } from './log.js';

export interface Progress {
  /** Reports that `done` of `total` units are done; `metrics` are shown in the given order, numbers rounded. */
  update(done: number, metrics?: Readonly<Record<string, number | string>>): void;
  /** Reports that a long unit is under way: the line shows how far it is, its rate and the time that this part of it has left. */
  part(part: ProgressPart): void;
  /** Prints a separate line above the progress line. */
  note(line: string): void;
  /** Ends the line. Further calls do nothing. */
  finish(): void;
}

/** A part of a unit, such as the samples that a step draws first. */
export interface ProgressPart {
  /** The counted items, in the singular, after their purpose: `wrong steps: sample`. */
  readonly unit: string;
  readonly done: number;
  readonly total: number;
  /** Tokens of the items that are done. */
  readonly tokens?: number;
  /** Units that such a part serves, such as the steps that learn from a rollout. Absent: every unit has parts of its own, or none. */
  readonly serves?: number;
}

export interface ProgressOptions {
  readonly total: number;
  /** Units done before this session; a resumed run leaves them out of its rate. */
  readonly start?: number;
  /** The unit, in the singular; amounts of `byte` are shown as kB, MB and so on. Default `step`. */
  readonly unit?: string;
  /** Default: standard error, which leaves standard output to results. */
  readonly stream?: ProgressStream;
  /** Milliseconds; for tests. */
  readonly now?: () => number;
}

const REDRAW_MS = 100;
const PIPE_LINE_MS = 10_000;
/** Until the first line in a pipe, while a long unit is under way. */
const PIPE_FIRST_MS = 2000;
const BAR_WIDTH = 20;

export function createProgress(options: ProgressOptions): Progress {
  const {
    total,
    start = 0,
    unit = 'step',
    stream = progressStream(),
    now = () => performance.now(),
  } = options;
  const live = stream.isTTY === true && process.env.TERM !== 'dumb';
  const interval = live ? REDRAW_MS : PIPE_LINE_MS;
  const colors = pc.createColors(live && !process.env.NO_COLOR);
  const began = now();
  // The first step takes far longer than the others: memory, caches, compiled code.
  let first: { readonly done: number; readonly time: number } | undefined;
  let shownAt = Number.NEGATIVE_INFINITY;
  let line = '';
  let finished = false;
  let lastDone = start;
  let part: (ProgressPart & { readonly time: number }) | undefined;
  /** Units that share a long part, and when the first of these parts began. */
  let cycle: { readonly units: number; readonly began: number } | undefined;

  const clear = () => live && line !== '' && stream.write('\r\x1b[2K');
  const draw = () => stream.write(live ? line : `${line}\n`);

  return {
    update(done, metrics = {}) {
      if (finished) return;
      lastDone = done;
      part = undefined;
      const time = now();
      if (done > start) first ??= { done, time };
      if (time - shownAt < interval && done < total) return;
      shownAt = time;
      const seconds = (time - began) / 1000;
      const steady = first && done > first.done && time > first.time ? first : undefined;
      const from = steady ?? { done: start, time: began };
      const rate = cycle
        ? rateByCycles(cycle, done, time)
        : time > from.time
          ? (done - from.done) / ((time - from.time) / 1000)
          : 0;
      const left = formatDuration((total - done) / rate);
      // A long first unit is not mostly what no other has.
      const isLong = seconds * 1000 >= PIPE_LINE_MS;
      const isTold = rate > 0 && done < total && (steady || isLong);
      show(done / total, {
        head: unit === 'byte' ? `${formatBytes(done)} of ${formatBytes(total)}` : `${unit} ${done}/${total}`,
        facts: [
          ...Object.entries(metrics).map(([name, value]) => `${name} ${formatMetric(value)}`),
          ...(rate > 0 ? [formatRate(rate, unit)] : []),
        ],
        left: [
          ...(isTold ? [`${steady ? '' : 'at most '}${left} left`] : []),
          ...(done >= total ? [`${formatDuration(seconds)} in all`] : []),
        ],
      });
    },
    part(report) {
      if (finished) return;
      const time = now();
      // Another unit is another part, whose rate is its own.
      if (part?.unit !== report.unit || part.total !== report.total || report.done < part.done)
        part = { ...report, time };
      const { serves } = report;
      if (serves !== undefined) cycle ??= { units: Math.min(serves, total - start), began: time };
      // A short part needs no line of its own.
      const least = shownAt < began ? Math.min(interval, PIPE_FIRST_MS) : interval;
      if (time - Math.max(shownAt, part.time) < least) return;
      shownAt = time;
      const seconds = (time - part.time) / 1000;
      const done = report.done - part.done;
      const tokens = (report.tokens ?? 0) - (part.tokens ?? 0);
      const ofPart = done > 0 ? ((report.total - report.done) * seconds) / done : undefined;
      // In the first cycle only such parts are known.
      const later =
        cycle && serves !== undefined && first === undefined ? (total - start) / cycle.units - 1 : 0;
      const ofLater = later * ((time - (cycle?.began ?? time)) / 1000 + (ofPart ?? 0));
      show((lastDone + report.done / Math.max(1, report.total)) / total, {
        head: `${unit} ${lastDone}/${total}`,
        facts: [
          `${report.unit} ${report.done}/${report.total}`,
          ...(tokens > 0 && seconds > 0 ? [`tokens/s ${formatMetric(tokens / seconds)}`] : []),
        ],
        left:
          ofPart === undefined
            ? []
            : [
                `${formatDuration(ofPart)} left of these${ofLater >= 1 ? `, ${formatDuration(ofLater)} of later ones` : ''}`,
              ],
      });
    },
    note(text) {
      if (finished) return;
      clear();
      if (stream.note) stream.note(text);
      else stream.write(`${text}\n`);
      if (live && line !== '') draw();
    },
    finish() {
      if (!finished && live && line !== '') stream.write('\n');
      finished = true;
    },
  };

  /** Units a second where a long part serves several: over the whole first cycle, as far as it is known, then over all. */
  function rateByCycles(
    { units, began: from }: { readonly units: number; readonly began: number },
    done: number,
    time: number,
  ): number {
    const taken = done - start;
    if (!first || time <= from) return 0;
    if (taken >= units) return taken / ((time - from) / 1000);
    // The units that learn from the part take their time too.
    if (done === first.done) return 0;
    const others = (time - first.time) / (done - first.done);
    return units / ((first.time - from + (units - first.done + start) * others) / 1000);
  }

  /** Draws a line; on a terminal, whose lines are cut at its width, the time that is left stands before the facts. */
  function show(
    share: number,
    {
      head,
      facts,
      left,
    }: { readonly head: string; readonly facts: readonly string[]; readonly left: readonly string[] },
  ): void {
    clear();
    line = live
      ? liveLine(share, [head, ...left, ...facts], stream.columns || 80)
      : [head, ...facts, ...left].join('  ');
    draw();
  }

  // Colour codes have no width, so the text is truncated first.
  function liveLine(share: number, parts: readonly string[], columns: number): string {
    const text = parts.join('  ').slice(0, Math.max(0, columns - BAR_WIDTH - 3));
    const full = Math.round(BAR_WIDTH * Math.min(1, Math.max(0, share)));
    return `${colors.green('━'.repeat(full))}${colors.dim('━'.repeat(BAR_WIDTH - full))}  ${text}`;
  }
}

/** `45s`, `3m20s`, `2h05m`. */
export function formatDuration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole}s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}m${String(whole % 60).padStart(2, '0')}s`;
  return `${Math.floor(minutes / 60)}h${String(minutes % 60).padStart(2, '0')}m`;
}

/** A metric short enough to read at a glance: four significant digits, thousands as k. */
export function formatMetric(value: number | string): string {
  if (typeof value === 'string') return value;
  if (Math.abs(value) >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (Math.abs(value) >= 1e4) return `${Number((value / 1000).toPrecision(3))}k`;
  return String(Number(value.toPrecision(4)));
}

/** `12.3 MB`: powers of 1000, as disks and networks are sold. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, bytes)) / 3)));
  return `${Number((bytes / 1000 ** power).toPrecision(3))} ${units[power]}`;
}

function formatRate(perSecond: number, name: string): string {
  if (name === 'byte') return `${formatBytes(perSecond)}/s`;
  // The last word names the counted items, as in `evaluation of sft: solution` and `sft step`.
  const unit = name.split(' ').at(-1) as string;
  if (perSecond >= 1) return `${formatMetric(Number(perSecond.toPrecision(3)))} ${unit}s/s`;
  const seconds = (1 / perSecond).toPrecision(2);
  return `${seconds.includes('e') ? Number(seconds) : seconds} s/${unit}`;
}
