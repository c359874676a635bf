// What Python's Jinja says, set up as transformers does: scripts/clients/templates.mjs compares it with the real ones.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parseExact } from '../../src/files/exact-json.js';
import { Template } from '../../src/jinja/template.js';

interface Golden {
  readonly messages: readonly unknown[];
  readonly first: string;
  /** A template and its text; null where Python raises an error. */
  readonly rendered: readonly (readonly [string, string | null])[];
}

const golden = JSON.parse(
  readFileSync(new URL('../golden/jinja/expressions.json', import.meta.url), 'utf8'),
) as Golden;

function render(source: string, variables: Readonly<Record<string, unknown>> = {}): string {
  return new Template(source).render({ messages: golden.messages, ...variables });
}

/** Parts of templates that are left out; each is refused by its name. */
const REFUSED = [
  '{% autoescape true %}',
  '{% block a %}b{% endblock %}',
  '{% print 1, 2 %}',
  '{% with a = 1, b = 2 %}',
  'recursive',
  'loop.changed',
  'd.update',
  '"a".__class__',
  '"%05d" % 3',
  "'%s is %d' % ",
  ...['center(', 'ljust(', 'zfill(', 'partition(', 'isalnum(', 'isspace('].map((method) => `.${method}`),
  ...['abs', 'batch', 'e ', 'format', 'groupby', 'round', 'slice', 'sum', 'wordcount'].map(
    (filter) => `|${filter}`,
  ),
  'is sameas',
  'is upper',
  "attr('upper')",
];

describe('a template', () => {
  it.each(golden.rendered)('%s', (source, right) => {
    const own = () => render(source.startsWith('[{{') ? golden.first + source : source);
    if (right === null) expect(own).toThrow();
    else if (REFUSED.some((each) => source.includes(each))) expect(own).toThrow(/not supported here/);
    else expect(own()).toBe(right);
  });

  it('keeps digits and kinds of numbers that come from JSON', () => {
    const o = parseExact('{"a": 2.0, "b": 12345678901234567890, "c": [1e5, -0.0, 0.10, 3]}');
    expect(render('{{ o | tojson }}', { o })).toBe(
      '{"a": 2.0, "b": 12345678901234567890, "c": [100000.0, -0.0, 0.1, 3]}',
    );
    expect(new Template('{{ f }} {{ [f] }} {{ i }}').render(parseExact('{"f": 2.0, "i": 2}') as never)).toBe(
      '2.0 [2.0] 2',
    );
    // As JavaScript itself writes numbers of this size, and as Python's json writes the floats.
    const large = parseExact('[1e+21, -1e+21, 1e21, 1e+100, 1000000000000000000000]');
    expect(render('{{ o | tojson }} {{ x }}', { o: large, x: 1e21 })).toBe(
      '[1e+21, -1e+21, 1e+21, 1e+100, 1000000000000000000000] 1e+21',
    );
  });

  it('writes the date of strftime_now', () => {
    const now = () => new Date(2026, 10, 5, 15, 4, 9);
    expect(
      new Template("{{ strftime_now('%Y-%m-%d %-d %b %B %a %A %H:%M:%S %I %p %y %%') }}").render({}, { now }),
    ).toBe('2026-11-05 5 Nov November Thu Thursday 15:04:09 03 PM 26 %');
    expect(() => render("{{ strftime_now('%j') }}")).toThrow("'%j' of strftime_now is not supported here");
  });

  it('is stopped after its steps', () => {
    expect(() =>
      new Template('{% for a in range(1000) %}{% for b in range(1000) %}x{% endfor %}{% endfor %}').render(
        {},
        { steps: 10_000 },
      ),
    ).toThrow('stopped after 10000 steps; does it loop without end?');
  });
});
