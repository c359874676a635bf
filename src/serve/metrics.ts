/** Counters of a server in Prometheus' text format. */
import type { GeneratorLoad } from '../generate/generator.js';

/**
 * Upper bounds of the buckets, in seconds. Small models take a fraction of a millisecond for a token: where all fall
 * into the first bucket, a quantile of Prometheus is a share of its bound, whatever the times are.
 */
const BUCKETS = [
  ...[0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5],
  ...[1, 2.5, 5, 10, 30, 60, 120, 300],
];

export class Histogram {
  private readonly counts = new Array<number>(BUCKETS.length + 1).fill(0);
  private sum = 0;

  constructor(
    private readonly name: string,
    private readonly help: string,
  ) {}

  observe(seconds: number): void {
    const bucket = BUCKETS.findIndex((bound) => seconds <= bound);
    const at = bucket < 0 ? BUCKETS.length : bucket;
    this.counts[at] = (this.counts[at] as number) + 1;
    this.sum += seconds;
  }

  lines(): string[] {
    const { name, help, sum } = this;
    let total = 0;
    const buckets = this.counts.map((count, i) => {
      total += count;
      return `${name}_bucket{le="${BUCKETS[i] ?? '+Inf'}"} ${total}`;
    });
    return [
      `# HELP ${name} ${help}`,
      `# TYPE ${name} histogram`,
      ...buckets,
      `${name}_sum ${sum}`,
      `${name}_count ${total}`,
    ];
  }
}

export class ServerMetrics {
  readonly requestSeconds = new Histogram(
    'steptrain_request_seconds',
    'From the arrival of a generation request to its end.',
  );
  readonly firstTokenSeconds = new Histogram(
    'steptrain_first_token_seconds',
    'From the arrival of a generation request to the first token of each of its samples, streamed or not.',
  );
  readonly tokenSeconds = new Histogram(
    'steptrain_token_seconds',
    'From one token of a sample to the next, as a mean over the sample.',
  );
  promptTokens = 0;
  generatedTokens = 0;
  cancelledRequests = 0;
  private readonly responses = new Map<string, number>();

  /** Counts a response. Paths are those of the routes, so that clients cannot create labels. */
  responded(path: string, status: number): void {
    const labels = `path="${path}",status="${status}"`;
    this.responses.set(labels, (this.responses.get(labels) ?? 0) + 1);
  }

  text(load: GeneratorLoad): string {
    const lines: string[] = [];
    const family = (
      name: string,
      type: 'counter' | 'gauge',
      help: string,
      values: Record<string, number>,
    ) => {
      lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
      for (const [labels, value] of Object.entries(values))
        lines.push(`${name}${labels === '' ? '' : `{${labels}}`} ${value}`);
    };
    family(
      'steptrain_requests_total',
      'counter',
      'Responses by path and status.',
      Object.fromEntries(this.responses),
    );
    family('steptrain_requests_cancelled_total', 'counter', 'Generation requests whose client went away.', {
      '': this.cancelledRequests,
    });
    family('steptrain_prompt_tokens_total', 'counter', 'Tokens of prompts.', { '': this.promptTokens });
    family('steptrain_generated_tokens_total', 'counter', 'Tokens that were drawn.', {
      '': this.generatedTokens,
    });
    family('steptrain_rows', 'gauge', 'Samples that run and that wait.', {
      'state="running"': load.running,
      'state="waiting"': load.waiting,
    });
    family('steptrain_cache_pages', 'gauge', 'Pages of keys and values of 64 tokens.', {
      'state="used"': load.usedPages,
      'state="cached"': load.cachedPages,
      'state="free"': load.pages - load.usedPages - load.cachedPages,
    });
    family('steptrain_resident_bytes', 'gauge', 'Memory of the process.', { '': process.memoryUsage.rss() });
    const histograms = [this.requestSeconds, this.firstTokenSeconds, this.tokenSeconds];
    return `${[...lines, ...histograms.flatMap((each) => each.lines())].join('\n')}\n`;
  }
}
