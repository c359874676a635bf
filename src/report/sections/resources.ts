/** Shows the use of time and memory. */
import { plural } from '../../native/shown.js';
import type { CollectedRun } from '../collect.js';
import { bytes, duration, number } from '../format.js';
import { html } from '../html.js';
import { nameOf } from '../names.js';
import { bars } from '../svg/bars.js';
import type { Section } from './section.js';

export function time({ times, log }: CollectedRun): Section {
  const { paused } = times;
  const rows = times.phases.flatMap(({ phase, seconds, after }) => [
    ...(seconds >= 0.05 ? [{ name: phase, value: seconds, shown: duration(seconds) }] : []),
    ...(after >= 1 ? [{ name: `after ${phase}`, value: after, shown: duration(after) }] : []),
  ]);
  const parts = log.phases.flatMap(({ name, columns }) => {
    const seconds = [...columns].filter(([key]) => key.endsWith('_seconds') && !/^(rank_|logged_)/.test(key));
    const sums = seconds.map(
      ([key, { value }]) => [key, value.reduce((a, b) => a + b, 0) / value.length] as const,
    );
    const all = sums.reduce((sum, [, value]) => sum + value, 0);
    return all > 0
      ? [
          html`<p>In <b>${name}</b>, mean seconds of the logged steps: ${sums.map(([key, value], i) => html`${i > 0 && ', '}${nameOf(key.replace(/_seconds$/, ''))} ${number(value, 3)}`)}.</p>`,
        ]
      : [];
  });
  return {
    id: 'time',
    title: 'Time',
    body:
      rows.length > 0
        ? html`${bars(rows, { name: 'Phase', value: 'time' })}<div class="notes">${parts}<p class="hint">From the first logged line of a phase to its last, evaluations included; “after” is until the next phase’s first line: saving, loading, and the final evaluation.${paused.seconds >= 1 && html` The run was stopped and resumed: ${pausesOf(paused)} are left out.`}</p></div>`
        : undefined,
    absent: 'The wall times stand in the TensorBoard events, which are missing or of another log.',
  };
}

/** `2:03:00 h in 2 pauses`. */
export const pausesOf = ({ seconds, pauses }: CollectedRun['times']['paused']): string =>
  `${duration(seconds)} in ${plural(pauses, 'pause')}`;

export function memory(run: CollectedRun): Section {
  const { memory, log } = run;
  const roles = memory
    ? [...new Set([...Object.keys(memory.planned_bytes), ...Object.keys(memory.held_bytes)])]
    : [];
  const planned = memory?.planned_peak_bytes;
  const peaks = log.phases.flatMap(({ name, columns }) => {
    const measured = columns.get('peak_bytes')?.value;
    return measured ? [{ name: `peak of ${name}`, value: measured.reduce((a, b) => Math.max(a, b), 0) }] : [];
  });
  const rows = [
    ...peaks.map(({ name, value }) => ({
      name,
      value,
      shown: bytes(value),
      ...(planned === undefined ? {} : { outline: planned, outlineShown: bytes(planned) }),
    })),
    ...roles.map((role) => {
      const [outline, value] = [memory?.planned_bytes[role], memory?.held_bytes[role] ?? 0];
      return {
        name: nameOf(role),
        value,
        shown: bytes(value),
        ...(outline === undefined ? {} : { outline, outlineShown: bytes(outline) }),
      };
    }),
  ];
  return {
    id: 'memory',
    title: 'Memory against plan',
    body:
      rows.length > 0
        ? html`${bars(rows, { name: 'What', value: 'measured', outline: 'planned' })}<p class="hint">The plan is made before the first step, for the largest micro-batch; the outline is what it allows. Roles are measured when they are created, before optimizer moments and activations${memory?.gradient_checkpointing && '; gradient checkpointing is on'}.</p>`
        : undefined,
    absent: 'memory.json is written before the first step.',
  };
}
