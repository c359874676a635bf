// Every figure of the tables of research/h100.md is one that was measured, or the ratio of two such.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

interface Figures {
  readonly ms?: number;
  readonly tflops?: number;
  readonly peakGB?: number;
}
interface Case {
  readonly op: string;
  readonly name: string;
}
interface Bench extends Figures, Case {
  readonly rivals?: readonly (Figures & { readonly setting: string })[];
}
interface Choice extends Case {
  readonly verified?: readonly number[];
  readonly successor?: readonly number[];
  readonly winner?: string;
}
interface Report {
  readonly bench: readonly Bench[];
  readonly choice: readonly Choice[];
  readonly tests: readonly {
    readonly set: string;
    readonly passed: number;
    readonly failed: readonly object[];
  }[];
  readonly trials?: Readonly<Record<'cudnn' | 'cublas' | 'sums', readonly (Figures & Case)[]>>;
}

const [first, second, third] = ['', '-2', '-3'].map(
  (number) =>
    JSON.parse(readFileSync(`bench/results/nvidia-h100-2026-11-26${number}.json`, 'utf8')) as Report,
) as [Report, Report, Report];

const present = (values: readonly (number | undefined)[]) => values.filter((value) => value !== undefined);
const times = (rows: readonly Figures[]) => present(rows.map(({ ms }) => ms));
const rivalsOf = (report: Report) => report.bench.flatMap(({ rivals = [] }) => rivals);
const chosen = (which: 'verified' | 'successor') => present(third.choice.map((one) => one[which]?.[0]));
const { sums = [], cudnn = [], cublas = [] } = second.trials ?? {};
const RIVALS = [...times(rivalsOf(first)), ...times(rivalsOf(third)), ...times(cudnn), ...times(cublas)];
const BEFORE = times(first.bench);
const NOW = [...times(third.bench), ...times(sums), ...chosen('verified')];
/** What a column holds, by the words of its head. */
const COLUMNS: Readonly<Record<string, readonly number[]>> = {
  'first run': BEFORE,
  now: NOW,
  'best rival': RIVALS,
  steptrain: BEFORE,
  'best of PyTorch, cuDNN, Liger': RIVALS,
  'kernels above': chosen('verified'),
  successor: chosen('successor'),
  before: BEFORE,
  after: NOW,
};
/** Beside a time: memory, rate, tokens a second. */
const BESIDE = [first, third].flatMap(({ bench }) =>
  bench.flatMap((one) => {
    const tokens = one.op === 'step' ? Number(/(\d+) × 1024/.exec(one.name)?.[1]) * 1024 : Number.NaN;
    const all = [one, ...(one.rivals ?? [])];
    const rate = one.ms === undefined ? [] : [(tokens / one.ms) * 1e3];
    return [...rate, ...all.flatMap(({ ms, tflops, peakGB }) => present([ms, tflops, peakGB]))];
  }),
);

/** Our times and the rivals' of each case, in whichever run. */
const measured = new Map<string, { readonly ours: number[]; readonly rivals: number[] }>();
const caseOf = ({ op, name }: Case) => {
  const key = JSON.stringify([op, name]);
  const known = measured.get(key) ?? { ours: [], rivals: [] };
  measured.set(key, known);
  return known;
};
for (const one of [...first.bench, ...third.bench, ...sums]) caseOf(one).ours.push(...times([one]));
for (const one of [...first.bench, ...third.bench] as readonly Bench[])
  caseOf(one).rivals.push(...times(one.rivals ?? []));
for (const one of [...cudnn, ...cublas]) caseOf(one).rivals.push(...times([one]));
for (const one of third.choice) caseOf(one).ours.push(...present([one.verified?.[0], one.successor?.[0]]));

/** A figure as written, and by how much what it was rounded from may be off. */
interface Written {
  readonly text: string;
  readonly value: number;
  readonly half: number;
}

function figuresIn(cell: string): Written[] {
  return [...cell.matchAll(/(?<![\w.,-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w])/g)].map(([text]) => {
    const plain = text.replaceAll(',', '');
    const places = plain.split('.')[1]?.length ?? 0;
    const zeros = text.includes(',') ? (/0*$/.exec(plain)?.[0].length ?? 0) : 0;
    return { text, value: Number(plain), half: (10 ** (zeros - places) / 2) * (1 + 1e-9) };
  });
}
const near = ({ value, half }: Written, measured: number) => Math.abs(measured - value) <= half;
/** A cell without what stands in brackets and the sizes that it repeats. */
const bare = (cell: string) =>
  cell
    .replaceAll(/\([^)]*\)/g, '')
    .replaceAll(/[\d.,]+ GB/g, '')
    .replaceAll(/\d+(\.\d+)?B\b/g, '');

interface Row {
  readonly work: string;
  readonly cells: Readonly<Record<string, string>>;
}

const rows: Row[] = [];
let head: readonly string[] | undefined;
for (const line of readFileSync('research/h100.md', 'utf8').split('\n')) {
  const cells = line.startsWith('|') ? line.slice(2, -2).split(' | ') : undefined;
  if (!cells) head = undefined;
  else if (!head) head = cells;
  else if (!/^-/.test(cells[0] as string)) {
    const names = head;
    rows.push({
      work: cells[0] as string,
      cells: Object.fromEntries(cells.map((cell, i) => [names[i] as string, cell])),
    });
  }
}
const timed = rows.filter(({ cells }) => Object.keys(cells).some((name) => name in COLUMNS));
/** Of a limit that was computed, not measured. */
const isLimit = (cell: string) => cell.startsWith('limit');

describe.each(timed)('$work', ({ work, cells }) => {
  it('has times that were measured', () => {
    let count = 0;
    for (const [name, cell] of Object.entries(cells)) {
      if (isLimit(cell)) continue;
      for (const figure of COLUMNS[name] ? figuresIn(bare(cell)) : []) {
        expect(
          COLUMNS[name]?.some((value) => near(figure, value)),
          `${name}: ${figure.text}`,
        ).toBe(true);
        count++;
      }
      const beside = [...cell.matchAll(/\(([^)]*)\)|[\d.]+ GB/g)].filter(() => COLUMNS[name]);
      for (const figure of [...beside, work.match(/\([^)]*tokens\/s[^)]*\)/) ?? ['']].flatMap(([text]) =>
        figuresIn((text as string).replace(/GiB|GB/, '')),
      ))
        if (figure.value !== 10)
          expect(
            BESIDE.some((value) => near(figure, value)),
            `beside ${name}: ${figure.text}`,
          ).toBe(true);
    }
    if (!/rmsnorm/.test(work)) expect(count).toBeGreaterThan(0);
  });

  it('has the ratios of times of one case', () => {
    const shown = (...names: string[]) => {
      const found = names.find((name) => cells[name] !== undefined && !/^(–|limit)/.test(cells[name]));
      return found === undefined ? [] : figuresIn(bare(cells[found] as string));
    };
    const ours = shown('now', 'steptrain', 'successor', 'after');
    const rivals = shown('best rival', 'best of PyTorch, cuDNN, Liger');
    const quotients = (column: string, i: number) =>
      [...measured.values()].flatMap(({ ours: own, rivals: others }) =>
        own
          .filter((value) => !ours[i] || near(ours[i], value))
          .flatMap((value) =>
            column === 'ratio' && 'successor' in cells
              ? own.filter((old) => near(shown('kernels above')[i] as Written, old)).map((old) => old / value)
              : others.filter((other) => !rivals[i] || near(rivals[i], other)).map((other) => other / value),
          ),
      );
    for (const column of ['ratio', 'cuDNN / successor', 'PyTorch, ratio']) {
      const cell = cells[column] ?? '';
      if (/limit|of 716/.test(cell) || isLimit(cells['best of PyTorch, cuDNN, Liger'] ?? '')) continue;
      const figures = figuresIn(bare(cell.replace(/^.*: /, '')));
      figures.forEach((figure, i) => {
        const all = quotients(column, i);
        expect(
          all.some((value) => near(figure, value)),
          `${column}: ${figure.text} of ${all.join()}`,
        ).toBe(true);
      });
    }
  });
});
