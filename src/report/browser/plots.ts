/** All plots of a page: those in view are drawn first, the others when the page is idle or printed. All share one smoothing and one colouring. */
import type { PlotData } from './data.js';
import { Plot } from './plot.js';

export class Plots {
  private readonly data = new Map<string, PlotData>();
  private readonly drawn = new Map<string, Plot>();
  private smoothing = 0.6;
  private readonly near = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) if (isIntersecting) this.draw(target as HTMLElement);
    },
    { rootMargin: '400px' },
  );
  private readonly resized = new ResizeObserver((entries) => {
    for (const { target } of entries) this.drawn.get((target as HTMLElement).dataset.plot ?? '')?.resize();
  });

  constructor(data: readonly PlotData[]) {
    this.take(data);
  }

  /** Finds the places of plots below `root`. */
  mount(root: ParentNode): void {
    for (const [id, plot] of this.drawn) {
      if (plot.place.isConnected) continue;
      plot.destroy();
      this.drawn.delete(id);
    }
    const places = [...root.querySelectorAll<HTMLElement>('[data-plot]')];
    for (const place of places) {
      this.near.observe(place);
      this.resized.observe(place);
    }
    requestIdleCallback(() => this.drawLater(places));
  }

  /** Draws all at once before the page is printed: nobody scrolls through a print. */
  connectPrint(): void {
    window.addEventListener('beforeprint', () => {
      for (const place of document.querySelectorAll<HTMLElement>('[data-plot]')) this.draw(place);
    });
  }

  /** Replaces the numbers, as a run goes on. */
  update(data: readonly PlotData[]): void {
    this.take(data);
    for (const [id, plot] of this.drawn) {
      const own = this.data.get(id);
      if (own) plot.setData(own);
    }
  }

  recolour(): void {
    for (const plot of this.drawn.values()) plot.rebuild();
  }

  connectSmoothing(): void {
    // On the document: a live page may replace the slider.
    document.addEventListener('input', ({ target }) => {
      if (!(target instanceof HTMLInputElement) || target.id !== 'smoothing') return;
      this.smoothing = Number(target.value);
      const output = document.getElementById('smoothing-value');
      if (output) output.textContent = this.smoothing.toFixed(2);
      for (const plot of this.drawn.values()) plot.smooth(this.smoothing);
    });
  }

  private take(data: readonly PlotData[]): void {
    for (const plot of data) this.data.set(plot.id, plot);
  }

  /** Draws plots out of view too, one at each idle moment, so that a picture of the whole page has them. */
  private drawLater([place, ...others]: readonly HTMLElement[]): void {
    if (!place) return;
    if (place.isConnected) this.draw(place);
    requestIdleCallback(() => this.drawLater(others));
  }

  private draw(place: HTMLElement): void {
    const id = place.dataset.plot ?? '';
    const data = this.data.get(id);
    if (!data || this.drawn.has(id)) return;
    const legend = place.parentElement?.querySelector<HTMLElement>('[data-legend]');
    if (legend) this.drawn.set(id, new Plot(place, legend, data, this.smoothing));
  }
}
