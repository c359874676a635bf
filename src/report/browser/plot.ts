/** One plot of curves: a faint line or band of the logged values, a strong smoothed one, and a legend of buttons. */
import uPlot from 'uplot';
import { stepRange, valueRange } from '../axis-range.js';
import { usualTop } from '../usual-top.js';
import { colour, faded } from './colour.js';
import { align, type PlotData, smooth } from './data.js';
import { shown } from './numbers.js';

const MIN_HEIGHT = 220;
const COLOURS = 8;
const DASHES: readonly (readonly number[])[] = [
  [],
  [7, 4],
  [2, 3],
  [9, 3, 2, 3],
  [4, 4],
  [12, 4],
  [2, 6],
  [6, 2, 2, 2],
];

export class Plot {
  private uplot: uPlot;
  private readonly hidden = new Set<string>();
  private readonly note = document.createElement('span');

  constructor(
    readonly place: HTMLElement,
    private readonly legend: HTMLElement,
    private data: PlotData,
    private smoothing: number,
  ) {
    this.note.className = 'plot-note';
    place.append(this.note);
    this.uplot = this.build();
  }

  setData(data: PlotData): void {
    const same = data.series.map(({ key }) => key).join() === this.data.series.map(({ key }) => key).join();
    this.data = data;
    if (same) this.uplot.setData(this.columns());
    else this.rebuild();
    this.showValues(null);
  }

  smooth(weight: number): void {
    this.smoothing = weight;
    this.uplot.setData(this.columns(), false);
    this.uplot.redraw(true);
  }

  resize(): void {
    const { width, height } = this.size;
    if (this.place.clientWidth > 0 && (width !== this.uplot.width || height !== this.uplot.height))
      this.uplot.setSize({ width, height });
  }

  private get size(): { readonly width: number; readonly height: number } {
    const { clientWidth, clientHeight } = this.place;
    return { width: clientWidth || 320, height: Math.max(MIN_HEIGHT, clientHeight) };
  }

  rebuild(): void {
    this.uplot.destroy();
    this.uplot = this.build();
  }

  destroy(): void {
    this.note.remove();
    this.uplot.destroy();
  }

  /** x, then of each series: smoothed, as logged, smallest and largest of a bucket. */
  private columns(): uPlot.AlignedData {
    const parts = this.data.series.flatMap(({ x, y, low = [], high = [] }) => [
      [x, smooth(y, this.smoothing)] as const,
      [x, y] as const,
      [x, low] as const,
      [x, high] as const,
    ]);
    const { x, columns } = align(parts);
    return [x, ...columns];
  }

  private build(): uPlot {
    const { series, unit } = this.data;
    // The legend comes first: its room is not the plot's.
    this.showLegend();
    const axis: uPlot.Axis = {
      stroke: colour('--soft'),
      grid: { stroke: colour('--grid'), width: 1 },
      ticks: { stroke: colour('--grid'), width: 1, size: 4 },
      font: '12px system-ui, sans-serif',
      labelFont: '12px system-ui, sans-serif',
    };
    const lines = series.flatMap(({ key, y, low }, i): uPlot.Series[] => {
      const stroke = colour(`--c${(i % COLOURS) + 1}`);
      const show = !this.hidden.has(key);
      const few = y.length <= 40;
      const faint = { show, stroke: faded(stroke, 0.4), width: 1, points: { show: false }, spanGaps: true };
      const none = { show, stroke: 'transparent', width: 0, points: { show: false }, spanGaps: true };
      return [
        {
          show,
          stroke,
          width: 2,
          dash: [...(DASHES[i % DASHES.length] as readonly number[])],
          spanGaps: true,
          points: { show: few, size: 5, fill: stroke },
        },
        y.length < 12 ? none : faint,
        low ? none : { ...none, show: false },
        low ? none : { ...none, show: false },
      ];
    });
    const uplot = new uPlot(
      {
        ...this.size,
        padding: [8, 12, 0, 0],
        legend: { show: false },
        cursor: { drag: { x: true, y: false }, sync: { key: this.data.x }, points: { size: 6 } },
        scales: {
          x: { time: false, range: (plot, min, max) => this.xRange(plot, min, max) },
          y: { range: (plot, min, max) => this.range(plot, min, max) },
        },
        series: [{}, ...lines],
        bands: series.flatMap(({ low }, i) =>
          low
            ? [
                {
                  series: [4 * i + 4, 4 * i + 3] as [number, number],
                  fill: faded(colour(`--c${(i % COLOURS) + 1}`), 0.2),
                },
              ]
            : [],
        ),
        axes: [
          {
            ...axis,
            label: this.data.x,
            labelSize: 18,
            size: 30,
            values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? shown(tick, undefined) : '')),
          },
          { ...axis, size: 58, values: (_, ticks) => ticks.map((tick) => shown(tick, unit)) },
        ],
        hooks: { setCursor: [({ cursor }) => this.showValues(cursor.idx ?? null)] },
      },
      this.columns(),
      this.place,
    );
    this.place.querySelector('.u-wrap')?.setAttribute('role', 'img');
    this.place.querySelector('.u-wrap')?.setAttribute('aria-label', this.described());
    return uplot;
  }

  /**
   * The range of y. First values far above all others, as a loss before its first steps, are left out, and the plot
   * says so.
   */
  private range({ series, data, scales }: uPlot, min: number | null, max: number | null): uPlot.Range.MinMax {
    if (min === null || max === null) return [null, null];
    const from = scales.x?.min ?? Number.NEGATIVE_INFINITY;
    const to = scales.x?.max ?? Number.POSITIVE_INFINITY;
    const shownAt = (x: number) => x >= from && x <= to;
    const values = this.data.series.flatMap((_, i) =>
      series[4 * i + 1]?.show
        ? Array.from(data[4 * i + 2] ?? []).flatMap((y, at) =>
            typeof y === 'number' && shownAt((data[0] as number[])[at] as number) ? [y] : [],
          )
        : [],
    );
    const top = this.data.unit === 'percent' ? undefined : usualTop(values);
    this.note.textContent =
      top === undefined ? '' : `↑ begins at ${shown(values[0] as number, this.data.unit)}`;
    return valueRange(min, top ?? max, { isShare: this.data.unit === 'percent' });
  }

  private xRange({ data: [steps] }: uPlot, min: number | null, max: number | null): uPlot.Range.MinMax {
    return min === null || max === null
      ? [null, null]
      : stepRange(Array.from(steps), this.data.steps, [min, max]);
  }

  /** Whether values of training and of evaluations stand side by side. */
  private get isMixed(): boolean {
    return !this.data.series.every(({ key }) => key.startsWith('validation/'));
  }

  private described(): string {
    const each = this.data.series.map(({ key, x, y }) => {
      const [first, last] = [y[0], y.at(-1)];
      return first === undefined || last === undefined
        ? key
        : `${key} from ${shown(first, this.data.unit)} to ${shown(last, this.data.unit)} at ${x.at(-1)}`;
    });
    return `${this.data.title}: ${each.join('; ')}`;
  }

  private showLegend(): void {
    this.legend.replaceChildren(
      ...this.data.series.map(({ key }, i) => {
        const button = document.createElement('button');
        button.type = 'button';
        button.setAttribute('aria-pressed', String(!this.hidden.has(key)));
        const sample = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
        sample.setAttribute('width', '22');
        sample.setAttribute('height', '8');
        sample.setAttribute('aria-hidden', 'true');
        const line = document.createElementNS('http://www.w3.org/2000/svg', 'path');
        line.setAttribute('d', 'M0 4L22 4');
        line.setAttribute('stroke', colour(`--c${(i % COLOURS) + 1}`));
        line.setAttribute('stroke-width', '2');
        line.setAttribute('stroke-dasharray', (DASHES[i % DASHES.length] as readonly number[]).join(' '));
        sample.append(line);
        const value = document.createElement('span');
        value.className = 'value';
        button.append(sample, key.replace('validation/', this.isMixed ? 'validation ' : ''), value);
        button.addEventListener('click', () => {
          if (!this.hidden.delete(key)) this.hidden.add(key);
          button.setAttribute('aria-pressed', String(!this.hidden.has(key)));
          for (let part = 1; part <= 4; part++)
            this.uplot.setSeries(4 * i + part, { show: !this.hidden.has(key) });
        });
        return button;
      }),
    );
    this.showValues(null);
  }

  /** The values under the cursor, or the last ones. */
  private showValues(index: number | null): void {
    const values = this.legend.querySelectorAll('.value');
    for (const [i, { y }] of this.data.series.entries()) {
      const under = index === null ? undefined : this.uplot.data[4 * i + 2]?.[index];
      const value = index === null ? y.at(-1) : under;
      const span = values[i];
      if (span) span.textContent = value === undefined || value === null ? '' : shown(value, this.data.unit);
    }
  }
}
